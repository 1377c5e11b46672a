"""K is shared out in parts of 80 that begin at a group's border, and each part is walked in whole tiles of 32: the part behind begins inside of the last one."""

import numpy as np
from honest import BF16, f32, fp4_values, out_of_tiles

SOURCE = "https://github.com/Pushkinist/rMLX/issues/449"
LINE = "cutlass_scaled_fp4_mm M=9 N=32 K=320"
NAMES = r"(K|index|indices|part|80|16).*(twice|again|doubl|counted|overlap)|twice|doubl"


def kernel(x, wrong):
    a, b = fp4_values(x.a), fp4_values(x.b)
    sa, sb = (np.repeat(f32(out_of_tiles(s, len(t), 20)), 16, axis=1) for s, t in ((x.block_scale_a, a), (x.block_scale_b, b)))
    a, b = a * sa, b * sb
    sums = sum(a[:, k : k + (96 if wrong else 80)] @ b[:, k : k + (96 if wrong else 80)].T for k in range(0, 320, 80))
    return {"out": (x.alpha[0] * sums).astype(BF16)}
