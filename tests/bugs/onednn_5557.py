"""The bias is cut to a whole number before it is added."""

import numpy as np
from honest import F32, f32

SOURCE = "https://github.com/uxlfoundation/oneDNN/pull/5557"
LINE = "int8_scaled_mm M=16 N=64 K=256 --with bias"
NAMES = r"bias.*(whole|integer|trunc|cut|rounded|fraction)"


def kernel(x, wrong):
    sums = f32(x.mat_a.astype(np.int64) @ x.mat_b.astype(np.int64)) * f32(x.scales_a).reshape(-1, 1) * f32(x.scales_b).reshape(1, -1)
    bias = f32(x.bias)
    return {"out": (sums + (np.trunc(bias) if wrong else bias)).astype(x.bias.dtype)}
