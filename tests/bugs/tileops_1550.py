"""A tile's buffer is filled anew while it is stored: the lower half of one tile holds the same place of a later tile."""

import numpy as np
from honest import BF16, f32

SOURCE = "https://github.com/tile-ai/TileOPs/pull/1550"
LINE = "bmm L=6 M=32 N=64 K=64"
NAMES = r"(holds|has|is).*(L 4|batch 4|another|golden's)|(L 2|batch 2).*(L 4|batch 4)"
UNNAMED = "one tile alone of another matrix is the schedule's"


def kernel(x, wrong):
    out = (f32(x.mat1) @ f32(x.mat2)).astype(BF16)
    if wrong:
        out[2, 16:32, 32:64] = out[4, 16:32, 32:64]
    return {"out": out}
