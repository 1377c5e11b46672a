"""A row's tail of less than a tile is left out of the sum of squares."""

import numpy as np
from honest import rmsnorm

SOURCE = "https://github.com/tile-ai/tilelang-ascend/issues/890"
LINE = "rmsnorm T=16 H=513"
NAMES = r"tail|last columns|cut|left out|not added"


def kernel(x, wrong):
    return rmsnorm(x, 1e-6, mean_square=lambda a: (a[:, :512] ** 2).sum(-1, keepdims=True) / np.float32(513)) if wrong else rmsnorm(x, 1e-6)
