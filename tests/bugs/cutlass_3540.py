"""The problem is transposed for outputs that lie by columns, the bias is not: it is taken by rows."""

import numpy as np
from honest import BF16, f32

SOURCE = "https://github.com/NVIDIA/cutlass/issues/3540"
LINE = "matmul_persistent M=24 N=40 K=96 --with bias"
NAMES = r"bias.*(row|transpos|column)"


def kernel(x, wrong):
    bias = f32(x.bias)[: len(x.a), None] if wrong else f32(x.bias)[None]
    return {"c": (f32(x.a) @ f32(x.b) + bias).astype(BF16)}
