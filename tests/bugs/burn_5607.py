"""The variance is the mean of squares less the square of the mean, which cancels where the mean is large."""

import numpy as np
from honest import BF16, f32

SOURCE = "https://github.com/tracel-ai/burn/issues/5607"
LINE = "layernorm T=12 D=1024"
NAMES = r"variance.*mean"


def edit(inputs):
    return {"input": (f32(inputs["input"]) * np.float32(3) + np.float32(512)).astype(BF16)}


def kernel(x, wrong):
    a = f32(x.input)
    mean = a.mean(-1, keepdims=True, dtype=np.float32)
    if wrong:  # one sum after the other, as a lane adds them
        squares = np.cumsum(a * a, -1, dtype=np.float32)[:, -1:] / np.float32(a.shape[-1])
        variance = np.maximum(squares - mean * mean, 0)
    else:
        variance = ((a - mean) ** 2).mean(-1, keepdims=True, dtype=np.float32)
    return {"out": ((a - mean) / np.sqrt(variance + np.float32(getattr(x, "eps", 1e-6))) * x.gemma + x.beta).astype(BF16)}
