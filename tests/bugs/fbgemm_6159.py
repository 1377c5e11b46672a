"""The scales of the last block of K are never applied, those of both operands: its sum stays in units of the codes."""

import numpy as np
from honest import BF16, by_blocks, f32

SOURCE = "https://github.com/pytorch/FBGEMM/issues/6159"
LINE = "fp8_blockwise_scaled_mm M=32 N=128 K=384"
NAMES = r"(last|index 2|from 256|256 on|from index 2).*(scale|1)|scale.*(last|index 2|from 2|block 2)"


def kernel(x, wrong):
    scales_a, scales_b = np.array(x.scales_a), np.array(x.scales_b.T)
    if wrong:
        scales_a[:, -1], scales_b[:, -1] = 1, 1
    return {"out": by_blocks(x.mat_a, scales_a, x.mat_b.T, scales_b).astype(BF16)}
