"""K is walked in pairs of slices of 64: of three slices the fourth is read beyond the row."""

import numpy as np
from honest import BF16, f32

SOURCE = "https://github.com/HazyResearch/HipKittens/pull/65"
LINE = "linear T=16 N=64 K=192"
NAMES = r"(next|following) row|beyond|behind|read on|further"


def kernel(x, wrong):
    a, b = f32(x.input), f32(x.weight)
    if wrong:
        a, b = (np.concatenate([t, np.concatenate([t[1:, :64], np.zeros((1, 64), np.float32)])], 1) for t in (a, b))
    return {"output": (a @ b.T).astype(BF16)}
