"""One thread adds up partial sums that the others already overwrite with the next column's: the last quarter of K is that of the column behind."""

import numpy as np
from honest import BF16, f32

SOURCE = "https://github.com/NVIDIA/cuml/pull/6578"
LINE = "linear T=12 N=64 K=512"
NAMES = r"(next|following|behind|n \+ 1|shift|turned).*(quarter|384|last|part)|(quarter|384|last|part).*(next|following|behind|n \+ 1|shift|turned)"


def kernel(x, wrong):
    a, w = f32(x.input), f32(x.weight).copy()
    if wrong:
        w[:-1, 384:] = f32(x.weight)[1:, 384:]
    return {"output": (a @ w.T).astype(BF16)}
