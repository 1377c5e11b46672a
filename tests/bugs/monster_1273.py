"""The tile of activations is loaded once, ahead of the loop over K: all of K is multiplied with its first 16 numbers."""

import numpy as np
from honest import BF16, f32

SOURCE = "https://github.com/1bit-MONSTER/1bit-MONSTER/issues/1273"
LINE = "linear T=3 N=48 K=256"
NAMES = r"input.*(first|16|tile)"


def kernel(x, wrong):
    a = f32(x.input)
    return {"output": ((a[:, np.arange(256) % 16] if wrong else a) @ f32(x.weight).T).astype(BF16)}
