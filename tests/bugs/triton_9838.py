"""Rows are filled with zeros up to a power of two, and each of these adds the mean's square to the variance."""

import numpy as np
from honest import BF16, f32

SOURCE = "https://github.com/triton-lang/triton/issues/9838"
LINE = "layernorm T=12 D=600"
NAMES = r"padd|power of two|1024"


def edit(inputs):
    return {"input": (f32(inputs["input"]) + np.float32(0.5)).astype(BF16)}


def kernel(x, wrong):
    a = f32(x.input)
    mean = a.mean(-1, keepdims=True, dtype=np.float32)
    squares = ((a - mean) ** 2).sum(-1, keepdims=True, dtype=np.float32)
    if wrong:
        squares = squares + np.float32(1024 - 600) * mean * mean
    return {"out": ((a - mean) / np.sqrt(squares / np.float32(600) + np.float32(getattr(x, "eps", 1e-6))) * x.gemma + x.beta).astype(BF16)}
