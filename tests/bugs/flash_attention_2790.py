"""The last tile of columns is stored whole: what lies beyond falls upon the next row's first columns, and holds this row's."""

import numpy as np
from honest import BF16, f32

SOURCE = "https://github.com/Dao-AILab/flash-attention/pull/2790"
LINE = "linear T=24 N=40 K=128"
NAMES = r"columns? 0\.\.23|row (before|above)|previous row|(next|row).*behind"


def kernel(x, wrong):
    out = (f32(x.input) @ f32(x.weight).T).astype(BF16)
    if wrong:
        honest = out.copy()
        out[1:, :24] = honest[:-1, :24]  # columns 40..63 of the tile are those of index modulo N
    return {"output": out}
