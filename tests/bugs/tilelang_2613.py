"""The second group of warps reads its tile of A when the next one has been loaded over it already."""

import numpy as np
from honest import BF16, f32

SOURCE = "https://github.com/tile-ai/tilelang/issues/2613"
LINE = "linear T=128 N=48 K=256"
NAMES = r"(rows 64\.\.127|half).*(tile|next|loaded|stale)|(next|stale).*tile.*"


def kernel(x, wrong):
    a, b = f32(x.input), f32(x.weight)
    if wrong:
        a = a.copy()
        a[64:] = np.concatenate([a[64:, 64:], a[64:, -64:]], 1)
    return {"output": (a @ b.T).astype(BF16)}
