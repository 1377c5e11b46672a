"""The next task's input arrives in shared memory before a finished tile was stored from there: part of the tile holds the input."""

import numpy as np
from honest import BF16, f32

SOURCE = "https://github.com/uccl-project/mKernel/pull/18"
LINE = "linear T=64 N=96 K=128"
NAMES = r"holds.*input|input's|of input"


def kernel(x, wrong):
    out = (f32(x.input) @ f32(x.weight).T).astype(BF16)
    if wrong:
        out[24:32, 32:64] = x.input[32:40, 0:32]
    return {"output": out}
