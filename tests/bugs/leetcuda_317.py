"""Epsilon is added to the number of columns instead of to the variance: a parenthesis too far."""

import numpy as np
from honest import BF16, f32

SOURCE = "https://github.com/xlite-dev/LeetCUDA/pull/317"
LINE = "layernorm T=12 D=512 --attr eps=1e-05"
NAMES = r"eps"


def edit(inputs):
    return {"input": (f32(inputs["input"]) * np.float32(2.0**-8)).astype(BF16)}


def kernel(x, wrong):
    a, eps = f32(x.input), np.float32(x.eps)
    mean = a.mean(-1, keepdims=True, dtype=np.float32)
    squares = ((a - mean) ** 2).sum(-1, keepdims=True, dtype=np.float32)
    variance = squares / (np.float32(512) + eps) if wrong else squares / np.float32(512) + eps
    return {"out": ((a - mean) / np.sqrt(variance) * x.gemma + x.beta).astype(BF16)}
