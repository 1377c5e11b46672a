"""Scales that are no powers of two are cut to the power below: 25 % are missing."""

import numpy as np
from honest import fp8_gemm_nt

SOURCE = "https://github.com/sgl-project/sglang/issues/39193"
LINE = "fp8_gemm_nt M=16 N=256 K=512"
NAMES = r"cut to the power of two"


def kernel(x, wrong):
    return fp8_gemm_nt(x, sfa=np.exp2(np.floor(np.log2(x.sfa))) if wrong else x.sfa)
