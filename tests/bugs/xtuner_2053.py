"""Rows of an expert are counted as padded to a multiple of 8, and rows after them are taken for other experts'."""

import numpy as np
from honest import BF16, by_blocks

SOURCE = "https://github.com/InternLM/xtuner/pull/2053"
LINE = "fp8_blockwise_scaled_grouped_mm M=70 N=128 K=128 E=4"
NAMES = r"expert_offsets|problem_sizes|(padded|multiple|rounded).*8"


def kernel(x, wrong):
    begins = np.append(x.expert_offsets[:4], 70).astype(int)
    if wrong:
        counts = -(-np.diff(begins) // 8) * 8
        begins = np.minimum(np.append(0, np.cumsum(counts)), 70)
        begins[-1] = 70
    out = np.zeros((70, 128), BF16)
    for e in range(4):
        rows = slice(begins[e], begins[e + 1])
        out[rows] = by_blocks(x.a[rows], x.scales_a[rows], x.b[e].T, x.scales_b[e].T).astype(BF16)
    return {"output": out}
