"""Factors and addends of a layer norm are fp32, and read as bf16."""

import numpy as np
from honest import BF16, f32, through

SOURCE = "https://github.com/ROCm/aiter/pull/3451"
LINE = "layernorm T=16 D=256"
NAMES = r"(gemma|beta).*bf16"


def kernel(x, wrong):
    a = f32(x.input)
    centred = a - a.mean(-1, keepdims=True, dtype=np.float32)
    scale = np.float32(1) / np.sqrt((centred * centred).mean(-1, keepdims=True, dtype=np.float32) + np.float32(1e-6))
    gemma, beta = (through(BF16, x.gemma), through(BF16, x.beta)) if wrong else (x.gemma, x.beta)
    return {"out": (centred * scale * gemma + beta).astype(BF16)}
