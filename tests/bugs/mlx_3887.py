"""The rest of K is bounded by the tile and not by what is left: numbers behind a row's end meet weights that the tile before left in memory."""

import numpy as np
from honest import BF16, f32

SOURCE = "https://github.com/ml-explore/mlx/issues/3887"
LINE = "linear T=24 N=48 K=224"
NAMES = r"(behind|beyond).*(end|K)|tail|last (partial )?tile|stale"
UNNAMED = "rows meet weights of another tile: no call of the op has both"


def kernel(x, wrong):
    a, b = f32(x.input), f32(x.weight)
    total = a @ b.T
    if wrong:  # tiles of 64: the last has 32 of its own
        flat = np.concatenate([a.reshape(-1), np.zeros(32, np.float32)])
        behind = np.stack([flat[(t + 1) * 224 : (t + 1) * 224 + 32] for t in range(len(a))])
        total = total + behind @ b[:, 160:192].T
    return {"output": total.astype(BF16)}
