"""A block of two rows has one sum of squares: that of both."""

import numpy as np
from honest import f32

SOURCE = "https://github.com/flagos-ai/FlagGems/pull/59"
LINE = "rmsnorm T=12 H=512"
NAMES = r"rows of a block|two rows|2 rows are added up"


def kernel(x, wrong):
    a = f32(x.input)
    mean = (a * a).mean(-1, keepdims=True, dtype=np.float32)
    if wrong:
        mean = np.repeat(mean.reshape(-1, 2).sum(-1), 2)[:, None]
    return {"output": (a / np.sqrt(mean + np.float32(getattr(x, "eps", 1e-6))) * f32(x.weight)).astype(x.input.dtype)}
