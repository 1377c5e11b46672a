"""The right matrices are read with rows and columns exchanged."""

import numpy as np
from honest import BF16, f32

SOURCE = "https://github.com/NVIDIA/cutlass/pull/1089"
LINE = "bmm L=3 M=5 N=40 K=72"
NAMES = r"mat2"


def kernel(x, wrong):
    right = x.mat2  # dense along K: [L, N, K] as it lies
    if wrong:
        right = np.ascontiguousarray(right.transpose(0, 2, 1)).reshape(3, 72, 40)
    return {"out": (f32(x.mat1) @ f32(right)).astype(BF16)}
