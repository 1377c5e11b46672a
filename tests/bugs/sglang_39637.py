"""A tile along K is wider than a block of scales: the scales never move on, and the first ones count for all of K."""

import numpy as np
from honest import f32, fp8_gemm_nt

SOURCE = "https://github.com/sgl-project/sglang/pull/39637"
LINE = "fp8_gemm_nt M=24 N=128 K=512"
NAMES = r"first"


def kernel(x, wrong):
    if not wrong:
        return fp8_gemm_nt(x)
    return fp8_gemm_nt(x, sfa=np.repeat(f32(x.sfa)[:, :1], 4, 1), sfb=np.repeat(f32(x.sfb)[:, :1], 4, 1))
