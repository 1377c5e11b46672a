"""The exponents of block scales are widened by a shift alone, and their bias stays: all scales are 2^-112 of what they should be."""

import numpy as np
from honest import cutlass_scaled_fp4_mm

SOURCE = "https://github.com/vllm-project/vllm/pull/47315"
LINE = "cutlass_scaled_fp4_mm M=9 N=64 K=256"
NAMES = r"factor|2\^-112|x golden"
UNNAMED = "zeros as far as bf16 can tell, or a factor of one of two operands"


def kernel(x, wrong):
    return cutlass_scaled_fp4_mm(x, alpha=x.alpha[0] * np.float32(2.0**-112) if wrong else None)
