"""Where a group's scales begin is told from the sum of rows before it and the number of groups, rounded down to four: the padding of single groups is lost."""

import numpy as np
from honest import BF16, by_blocks

SOURCE = "https://github.com/flashinfer-ai/flashinfer/pull/3562"
LINE = "es_fp8_blockwise_scaled_grouped_mm M=40 N=128 K=256 E=4"
NAMES = r"scales_a"
UNNAMED = "where padding would lie that the op does not have is the kernel's own"


def kernel(x, wrong):
    ends = np.append(x.expert_offsets[1:], 40)
    out = np.zeros((40, 128), BF16)
    for e in range(4):
        first, end = int(x.expert_offsets[e]), int(ends[e])
        if first == end:
            continue
        scales = x.scales_a[first:end]
        if wrong:
            moved = (first + e * 3) // 4 * 4
            padded = np.concatenate([x.scales_a, np.zeros((40, 2), np.float32)])
            scales = padded[moved : moved + end - first]
        out[first:end] = by_blocks(x.a[first:end], scales, x.b[e].T, x.scales_b[e].T).astype(BF16)
    return {"output": out}
