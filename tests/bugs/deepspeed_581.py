"""Variance and epsilon are narrowed to fp16 before the root is taken."""

import numpy as np
from honest import BF16, f32

SOURCE = "https://github.com/deepspeedai/DeepSpeed/issues/581"
LINE = "layernorm T=24 D=512"
NAMES = r"f16|fp16|narrow|half|16 bits|rounded"


def edit(inputs):
    return {"input": (f32(inputs["input"]) * np.float32(2.0**-9)).astype(BF16)}


def kernel(x, wrong):
    a, eps = f32(x.input), np.float32(getattr(x, "eps", 1e-6))
    mean = a.mean(-1, keepdims=True, dtype=np.float32)
    variance = ((a - mean) ** 2).mean(-1, keepdims=True, dtype=np.float32) + eps
    if wrong:
        variance = f32(variance.astype(np.float16))
    return {"out": ((a - mean) / np.sqrt(variance) * x.gemma + x.beta).astype(BF16)}
