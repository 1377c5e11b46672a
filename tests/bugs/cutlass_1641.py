"""Partial sums are never promoted: with twice as many instructions a tile the count of them skips the moment."""

import numpy as np
from honest import BF16, f32

SOURCE = "https://github.com/NVIDIA/cutlass/pull/1641"
LINE = "fp8_scaled_mm M=4 N=16 K=4096 --dialect trtllm --dist wide-exponent"
NAMES = r"promot"

UNNAMED = "which bits a unit keeps is the machine's"


def kernel(x, wrong):
    a, b = f32(x.mat_a), f32(x.mat_b)
    total = np.zeros((len(a), b.shape[1]))
    for k in range(0, a.shape[1], 32):
        products = a[:, k : k + 32, None].astype(np.float64) * b[None, k : k + 32]
        if wrong:  # what lies 13 bits below the largest addend is cut
            addends = np.concatenate([total[:, None], products], 1)
            unit = np.exp2(np.floor(np.log2(np.maximum(np.abs(addends).max(1, keepdims=True), 1e-30))) - 13)
            total = (np.trunc(addends / unit) * unit).sum(1)
        else:
            total = f32(total + products.sum(1)).astype(np.float64)
    return {"out": (f32(total) * f32(x.scales_b).reshape(1, -1) * f32(x.scales_a).reshape(-1, 1)).astype(BF16)}
