"""Strides are handed on in another order: B's stride along K is that of the bias, 0, and its first row serves all of K."""

import numpy as np
from honest import BF16, f32

SOURCE = "https://github.com/ROCm/tritonBLAS/pull/57"
LINE = "matmul_persistent M=24 N=40 K=96"
NAMES = r"b: .*(first|row 0|index 0|stride|K)"


def kernel(x, wrong):
    b = f32(x.b)
    return {"c": (f32(x.a) @ (np.repeat(b[:1], 96, 0) if wrong else b)).astype(BF16)}
