"""A tile's row is its number modulo the tiles of a row, its column the number over the tiles of a column: the other way round."""

import numpy as np
from honest import BF16, f32

SOURCE = "https://github.com/meta-pytorch/applied-ai/issues/25"
LINE = "linear T=64 N=96 K=128"
NAMES = r"tile|not (written|computed)|zeros"


def kernel(x, wrong):
    out = np.zeros((64, 96), BF16)
    rows, columns = 4, 6
    for tile in range(rows * columns):
        m, n = (tile % columns, tile // rows) if wrong else (tile % rows, tile // rows)
        if m < rows:
            at = slice(m * 16, m * 16 + 16), slice(n * 16, n * 16 + 16)
            out[at] = (f32(x.input[at[0]]) @ f32(x.weight[at[1]]).T).astype(BF16)
    return {"output": out}
