"""Mean and variance are taken over rows padded to whole tiles of 32: zeros count in both."""

import numpy as np
from honest import BF16, f32

SOURCE = "https://github.com/tenstorrent/tt-metal/pull/34584"
LINE = "layernorm T=12 D=1000"
NAMES = r"padd|1024|filled up|zeros"


def kernel(x, wrong):
    a = f32(x.input)
    width = 1024 if wrong else 1000
    wide = np.concatenate([a, np.zeros((12, width - 1000), np.float32)], 1)
    mean = wide.mean(-1, keepdims=True, dtype=np.float32)
    scale = 1 / np.sqrt(((wide - mean) ** 2).mean(-1, keepdims=True, dtype=np.float32) + np.float32(getattr(x, "eps", 1e-6)))
    return {"out": ((a - mean) * scale * x.gemma + x.beta).astype(BF16)}
