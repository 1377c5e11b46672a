"""The column of a code is counted within its group, without the group's own begin: all groups have the first one's codes."""

import numpy as np
from honest import fp8_gemm_nt

SOURCE = "https://github.com/1bit-MONSTER/1bit-MONSTER/issues/153"
LINE = "fp8_gemm_nt M=16 N=256 K=512"
NAMES = r"b: .*(first|group|mod|tile)"


def kernel(x, wrong):
    return fp8_gemm_nt(x, b=x.b[:, np.arange(x.b.shape[1]) % 128] if wrong else x.b)
