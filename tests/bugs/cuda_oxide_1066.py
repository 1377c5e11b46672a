"""A tile's place is taken from a mailbox that holds the next tile's by then: it is stored there too, and its own place keeps what was there."""

import numpy as np
from honest import BF16, f32

SOURCE = "https://github.com/NVlabs/cuda-oxide/pull/1066"
LINE = "linear T=96 N=128 K=128"
NAMES = r"tile"


def kernel(x, wrong):
    out = (f32(x.input) @ f32(x.weight).T).astype(BF16)
    if wrong:
        right = out.copy()
        out[32:64, 64:96] = right[32:64, 32:64]
    return {"output": out}
