"""Rows are divided by their largest magnitude before epsilon is added, which multiplies epsilon by its square."""

import numpy as np
from honest import f32, rmsnorm

SOURCE = "https://github.com/apple/coremltools/pull/2822"
LINE = "rmsnorm T=16 H=512 --dtype input=f32 --dist outliers --attr eps=1e-3"
NAMES = r"factor of its own|eps"


def kernel(x, wrong):
    largest = np.abs(f32(x.input)).max(-1, keepdims=True) if wrong else np.float32(1)
    return rmsnorm(x, x.eps * largest * largest)
