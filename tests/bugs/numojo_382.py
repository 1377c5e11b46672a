"""The left factor is read as wide as the vector of columns, where one number of it is meant for all: column n has it n mod 16 places further."""

import numpy as np
from honest import BF16, f32

SOURCE = "https://github.com/Mojo-Numerics-and-Algorithms-group/NuMojo/pull/382"
LINE = "matmul_persistent M=16 N=48 K=96"
NAMES = r"mod 16|(each|every|of) 16|further|n to the right"
UNNAMED = "a column's own place in the rows is no other operand"


def kernel(x, wrong):
    if not wrong:
        return {"c": (f32(x.a) @ f32(x.b)).astype(BF16)}
    flat, out = np.concatenate([f32(x.a).reshape(-1), np.zeros(16, np.float32)]), np.zeros((16, 48), np.float32)
    for n in range(48):
        shifted = flat[n % 16 : n % 16 + 16 * 96].reshape(16, 96)
        out[:, n] = shifted @ f32(x.b[:, n])
    return {"c": out.astype(BF16)}
