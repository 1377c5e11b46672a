"""Scales are rounded up to powers of two, though the codes were made with the others."""

import numpy as np
from honest import fp8_gemm_nt

SOURCE = "https://github.com/huggingface/transformers/issues/47030"
LINE = "fp8_gemm_nt M=16 N=256 K=512"
NAMES = r"power of two"


def kernel(x, wrong):
    return fp8_gemm_nt(x, sfa=np.exp2(np.ceil(np.log2(x.sfa))) if wrong else x.sfa, sfb=np.exp2(np.ceil(np.log2(x.sfb))) if wrong else x.sfb)
