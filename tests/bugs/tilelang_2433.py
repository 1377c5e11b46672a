"""A persistent kernel's last band of tiles, where their number along N is no multiple of 8, is never computed."""

import numpy as np
from honest import BF16, f32

SOURCE = "https://github.com/tile-ai/tilelang/issues/2433"
LINE = "matmul_persistent M=48 N=144 K=64"
NAMES = r"columns 128|from 128 on|last.*(16|tile)"


def kernel(x, wrong):
    out = (f32(x.a) @ f32(x.b)).astype(BF16)
    if wrong:
        out[:, 128:] = 0
    return {"c": out}
