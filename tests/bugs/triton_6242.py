"""A matrix of a batch is taken to begin as many rows behind the last one as its number says, not as a matrix has rows."""

import numpy as np
from honest import BF16, f32

SOURCE = "https://github.com/triton-lang/triton/issues/6242"
LINE = "bmm L=3 M=5 N=40 K=72"
NAMES = r"mat1.*(row|stride)"


def kernel(x, wrong):
    a = f32(x.mat1)
    if wrong:
        rows = a.reshape(-1, a.shape[-1])
        a = np.stack([rows[b : b + a.shape[1]] for b in range(len(a))])
    return {"out": (a @ f32(x.mat2)).astype(BF16)}
