"""Rank i receives the part i + 1."""

import numpy as np
from honest import f32

SOURCE = "https://github.com/Xilinx/ACCL/issues/25"
LINE = "reduce_scatter_tensor R=3 T=3 H=128"
NAMES = r"part|rank"
UNNAMED = "of a sum over ranks the parts lie rotated: rows say so, and which rank has which part they do not"


def kernel(x, wrong):
    out = f32(x.input).reshape(3, 3, 3, 128).sum(0, dtype=np.float32)
    return {"output": (np.roll(out, -1, 0) if wrong else out).astype(x.input.dtype)}
