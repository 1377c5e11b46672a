"""Columns of a scale are N over the number of blocks, 112 of 448, where a block has 128."""

import numpy as np
from honest import BF16, f32

SOURCE = "https://github.com/vllm-project/vllm/pull/49596"
LINE = "fp8_gemm_nt M=8 N=448 K=256"
NAMES = r"sfb.*(112|block|tile|column|N)"


def kernel(x, wrong):
    total = np.zeros((8, 448), np.float32)
    block = np.arange(448) // (112 if wrong else 128)
    for k in range(2):
        at = slice(k * 128, k * 128 + 128)
        total += f32(x.a[:, at]) @ f32(x.b[:, at]).T * f32(x.sfa)[:, k, None] * f32(x.sfb)[block, k]
    return {"d": total.astype(BF16)}
