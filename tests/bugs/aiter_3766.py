"""More parts of K are launched than there are, and the sum of the parts takes what a part that did nothing left in its place."""

import numpy as np
from honest import BF16, f32

SOURCE = "https://github.com/ROCm/aiter/pull/3766"
LINE = "bmm L=2 M=4 N=32 K=200"
NAMES = r"stale|earlier|not (cleared|initialised)|left (there|behind)|memory"
UNNAMED = "what a part that did nothing left behind is anything"


def kernel(x, wrong):
    sums = f32(x.mat1) @ f32(x.mat2)
    if wrong:
        sums = sums + np.random.default_rng(3).standard_normal(sums.shape).astype(np.float32) * 5
    return {"out": sums.astype(BF16)}
