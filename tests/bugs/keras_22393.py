"""The variance about the mean stands for the mean of the squares."""

import numpy as np
from honest import rmsnorm

SOURCE = "https://github.com/keras-team/keras/pull/22393"
LINE = "rmsnorm T=12 H=512"
NAMES = r"\bmean (is )?(taken off|subtracted|removed)|variance|centred|layernorm"


def edit(inputs):  # a mean that is not 0
    values = np.asarray(inputs["input"])
    return {"input": (values.astype(np.float32) + np.float32(0.4)).astype(values.dtype)}


def kernel(x, wrong):
    if not wrong:
        return rmsnorm(x, 1e-6)
    return rmsnorm(x, 1e-6, mean_square=lambda a: ((a - a.mean(-1, keepdims=True)) ** 2).mean(-1, keepdims=True))
