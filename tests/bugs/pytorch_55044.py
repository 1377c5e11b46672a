"""The variance is the mean of squares less the square of the mean, which cancels in fp32 where the mean is large."""

import numpy as np
from honest import BF16, f32

SOURCE = "https://github.com/pytorch/pytorch/pull/55044"
LINE = "layernorm T=12 D=512"
NAMES = r"mean of (the )?squares|one pass|cancel|square of the mean"


def edit(inputs):
    return {"input": (f32(inputs["input"]) + np.float32(100) * np.arange(4, 16, dtype=np.float32)[:, None]).astype(BF16)}


def kernel(x, wrong):
    a = f32(x.input)
    mean = a.mean(-1, keepdims=True, dtype=np.float32)
    variance = ((a - mean) ** 2).mean(-1, keepdims=True, dtype=np.float32)
    if wrong:
        squares = np.zeros((len(a), 1), np.float32)
        for c in range(0, a.shape[1], 32):
            squares = squares + (a[:, c : c + 32] ** 2).sum(-1, keepdims=True, dtype=np.float32)
        variance = np.maximum(squares / np.float32(a.shape[1]) - mean * mean, 0)
    return {"out": ((a - mean) / np.sqrt(variance + np.float32(getattr(x, "eps", 1e-6))) * x.gemma + x.beta).astype(BF16)}
