"""K ends in the middle of a tile of 64 that is not masked: rows are taken to go on into the next ones."""

import numpy as np
from honest import BF16, f32

SOURCE = "https://github.com/ml-explore/mlx/pull/3912"
LINE = "linear T=40 N=48 K=208"
NAMES = r"(next|beyond|behind|following|tail).*(row|tile|K|end)"



def kernel(x, wrong):
    a, b = f32(x.input), f32(x.weight)
    if wrong:
        width = -(-a.shape[1] // 64) * 64
        on = lambda t: np.concatenate([t.reshape(-1), np.zeros(width, np.float32)])
        far = lambda t: np.stack([on(t)[r * t.shape[1] : r * t.shape[1] + width] for r in range(len(t))])
        a, b = far(a), far(b)
    return {"output": (a @ b.T).astype(BF16)}
