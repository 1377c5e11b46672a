"""The sum of squares is accumulated in bf16."""

import numpy as np
from honest import BF16, rmsnorm, through

SOURCE = "https://github.com/pytorch/pytorch/issues/189581"
LINE = "rmsnorm T=16 H=512"
NAMES = r"accumulat|rounded|factor of its own"


def kernel(x, wrong):
    def in_bf16(a):
        total = np.zeros((len(a), 1), np.float32)
        for c in range(a.shape[1]):
            total = through(BF16, total + through(BF16, a[:, c : c + 1] ** 2))
        return total / np.float32(a.shape[1])

    return rmsnorm(x, 1e-6, mean_square=in_bf16) if wrong else rmsnorm(x, 1e-6)
