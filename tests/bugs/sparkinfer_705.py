"""A barrier is missing before shared memory is used again: warps that lag behind normalize with the next token's factor."""

import numpy as np
from honest import f32

SOURCE = "https://github.com/gittensor-ai-lab/sparkinfer/pull/705"
LINE = "rmsnorm T=32 H=1024"
NAMES = r"next row|row after"


def kernel(x, wrong):
    a = f32(x.input)
    scale = np.broadcast_to(np.float32(1) / np.sqrt((a * a).mean(-1, keepdims=True, dtype=np.float32) + np.float32(getattr(x, "eps", 1e-6))), a.shape).copy()
    if wrong:
        for row in range(3, 31, 5):
            scale[row, 256 + 32 * (row % 7) : 320 + 32 * (row % 7)] = scale[row + 1, 0]
    return {"output": (a * scale * f32(x.weight)).astype(x.input.dtype)}
