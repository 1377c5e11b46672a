"""Mean and mean square are kept in bf16, and the variance is their difference: it cancels."""

import numpy as np
from honest import BF16, f32, through

SOURCE = "https://github.com/tenstorrent/tt-metal/issues/45968"
LINE = "layernorm T=12 D=512"
NAMES = r"bf16|squares|cancel|16 bits|narrow"


def edit(inputs):
    return {"input": (f32(inputs["input"]) * np.float32(0.25) + np.float32(1.5)).astype(BF16)}


def kernel(x, wrong):
    a = f32(x.input)
    mean = a.mean(-1, keepdims=True, dtype=np.float32)
    variance = ((a - mean) ** 2).mean(-1, keepdims=True, dtype=np.float32)
    if wrong:
        variance = np.maximum(through(BF16, (a * a).mean(-1, keepdims=True, dtype=np.float32)) - through(BF16, mean) ** 2, 0)
    return {"out": ((a - mean) / np.sqrt(variance + np.float32(1e-6)) * x.gemma + x.beta).astype(BF16)}
