"""Variances below 1e-6 count as zero, so that such rows are divided by the root of epsilon alone."""

import numpy as np
from honest import BF16, f32

SOURCE = "https://github.com/pytorch/pytorch/issues/190491"
LINE = "layernorm T=16 D=256 --attr eps=1e-12"
NAMES = r"varianc.*(zero|0|least|below)|rows? where.*(less|small|magnitude)|small|1e-0?6"


def edit(inputs):  # a third of the rows are small
    factor = np.where(np.arange(16) % 3 == 1, 2.0**-11, 1).astype(np.float32)[:, None]
    return {"input": (f32(inputs["input"]) * factor).astype(BF16)}


def kernel(x, wrong):
    a, eps = f32(x.input), np.float32(x.eps)
    mean = a.mean(-1, keepdims=True, dtype=np.float32)
    variance = ((a - mean) ** 2).mean(-1, keepdims=True, dtype=np.float32)
    if wrong:
        variance = np.where(variance < np.float32(1e-6), np.float32(0), variance)
    return {"out": ((a - mean) / np.sqrt(variance + eps) * x.gemma + x.beta).astype(BF16)}
