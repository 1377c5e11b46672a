"""The loop counts on past K while its stages drain, and the tail asks that count: where whole tiles are a multiple of the stages the rest of K is left out."""

import numpy as np
from honest import BF16, f32, fp4_values, out_of_tiles

SOURCE = "https://github.com/NVIDIA/cutlass/issues/3536"
LINE = "cutlass_scaled_fp4_mm M=4 N=64 K=1152"
NAMES = r"(K|index|indices|1024|128).*(left out|dropped|cut|not added|beyond|end|last)|tail"


def kernel(x, wrong):
    a, b = fp4_values(x.a), fp4_values(x.b)
    sa, sb = (np.repeat(f32(out_of_tiles(s, len(t), 72)), 16, axis=1) for s, t in ((x.block_scale_a, a), (x.block_scale_b, b)))
    end = 1024 if wrong else 1152
    return {"out": (x.alpha[0] * ((a * sa)[:, :end] @ (b * sb)[:, :end].T)).astype(BF16)}
