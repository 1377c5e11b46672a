"""Tiles are dealt out in groups of 8 rows of tiles, also where fewer are left: tiles behind the first 8 rows are taken from the wrong places, and some are never written."""

import numpy as np
from honest import BF16, f32

SOURCE = "https://github.com/ROCm/FlyDSL/pull/979"
LINE = "linear T=160 N=64 K=64"
NAMES = r"rows (128|144|128\.\.)|from 128 on|behind 128|rows 12[0-9]"


def kernel(x, wrong):
    right = (f32(x.input) @ f32(x.weight).T).astype(BF16)
    if not wrong:
        return {"output": right}
    out, rows, columns = np.zeros_like(right), 10, 4
    for pid in range(rows * columns):
        group, inside = pid // (8 * columns), pid % (8 * columns)
        m, n = group * 8 + inside % 8, inside // 8
        if m < rows:
            out[m * 16 : m * 16 + 16, n * 16 : n * 16 + 16] = right[m * 16 : m * 16 + 16, n * 16 : n * 16 + 16]
    return {"output": out}
