"""Rows of an odd number of elements: the last vector of a row spills over the first element of the next."""

import numpy as np
from honest import f32, rmsnorm

SOURCE = "https://github.com/ROCm/aiter/issues/5044"
LINE = "rmsnorm T=7 H=769 --dtype input=f16"
NAMES = r"one column: 0|first column"


def kernel(x, wrong):
    out = rmsnorm(x, 1e-6)
    if wrong:
        # The block of row r normalizes what follows its row, too: the next row's first element, with its own scale.
        a = f32(x.input)
        scale = 1 / np.sqrt((a * a).mean(-1) + np.float32(1e-6))
        out["output"][1:, 0] = (a[1:, 0] * scale[:-1] * f32(x.weight)[0]).astype(x.input.dtype)
    return out
