"""Codes of a block are taken as split, low halves of all bytes before the high ones, where they lie two by two."""

import numpy as np
from honest import BF16, f32, fp4_values, out_of_tiles

SOURCE = "https://github.com/kekzl/imp/pull/567"
LINE = "cutlass_scaled_fp4_mm M=8 N=64 K=256"
NAMES = r"\bb\b.*(half|halves|nibble|split|order|interleav|permut|pairs?)"


def kernel(x, wrong):
    a, b = fp4_values(x.a), fp4_values(x.b)
    sa, sb = (np.repeat(f32(out_of_tiles(s, len(t), 16)), 16, axis=1) for s, t in ((x.block_scale_a, a), (x.block_scale_b, b)))
    if wrong:
        b = b.reshape(len(b), -1, 8, 2).swapaxes(2, 3).reshape(b.shape)
    return {"out": (x.alpha[0] * ((a * sa) @ (b * sb).T)).astype(BF16)}
