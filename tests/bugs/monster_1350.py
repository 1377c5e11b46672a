"""SiLU's sigmoid from a clipped cubic for tanh, which saturates at 1.74."""

import numpy as np
from honest import act_and_mul, sigmoid

SOURCE = "https://github.com/1bit-MONSTER/1bit-MONSTER/issues/1350"
LINE = "silu_and_mul T=16 D=256"
NAMES = r"sigmoid|tanh"
UNNAMED = "one kernel's own approximation"


def kernel(x, wrong):
    def from_cubic(g):
        y = g / 2
        return g * (np.float32(0.5) + np.float32(0.5) * np.clip(y * (1 + np.float32(0.1834) * y * y), -1, 1))

    return act_and_mul(x, from_cubic if wrong else lambda g: g * sigmoid(g))
