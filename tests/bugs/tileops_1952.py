"""Tiles of 16 rows are dealt out over all rows, and a tile that reaches into the next group multiplies all its rows with the first one's weights."""

import numpy as np
from honest import BF16, by_blocks

SOURCE = "https://github.com/tile-ai/TileOPs/pull/1952"
LINE = "fp8_blockwise_scaled_grouped_mm M=70 N=128 K=128 E=4"
NAMES = r"(tile|16).*(first|expert|group)|(first|expert|group).*(tile|16)"


def kernel(x, wrong):
    ends = np.append(x.expert_offsets[1:], 70)
    owner = np.array([int(np.searchsorted(ends, r, side="right")) for r in range(70)])
    if wrong:
        owner = owner[np.arange(70) // 16 * 16]
    out = np.zeros((70, 128), BF16)
    for e in range(4):
        rows = np.flatnonzero(owner == e)
        if len(rows):
            out[rows] = by_blocks(x.a[rows], x.scales_a[rows], x.b[e].T, x.scales_b[e].T).astype(BF16)
    return {"output": out}
