"""Tiles of columns are sent whole: what fills half a tile stays behind."""

import numpy as np

SOURCE = "https://github.com/ROCm/iris/issues/21"
LINE = "all_gather_into_tensor R=4 T=3 H=192 --attr dim=1"
NAMES = r"tile|zeros|128|tail"


def kernel(x, wrong):
    out = np.array(x.input).transpose(1, 0, 2).copy()
    if wrong:
        for r in range(4):
            if r != 0:
                out[:, r, 128:] = 0
    return {"output": out}
