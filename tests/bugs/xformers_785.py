"""Columns behind the first block are neither in the mean and the variance nor written."""

import numpy as np
from honest import BF16, f32

SOURCE = "https://github.com/facebookresearch/xformers/issues/785"
LINE = "layernorm T=12 D=1536"
NAMES = r"columns 1024|first 1024|tail"

UNNAMED = "where a block ends is the kernel's own"


def kernel(x, wrong):
    a = f32(x.input)[:, : 1024 if wrong else None]
    mean = a.mean(-1, keepdims=True, dtype=np.float32)
    scale = 1 / np.sqrt(((a - mean) ** 2).mean(-1, keepdims=True, dtype=np.float32) + np.float32(getattr(x, "eps", 1e-6)))
    out = np.zeros(x.input.shape, BF16)
    out[:, : a.shape[1]] = ((a - mean) * scale * x.gemma[: a.shape[1]] + x.beta[: a.shape[1]]).astype(BF16)
    return {"out": out}
