"""Tiles are dealt out in another order than they are numbered, and scales of rows are looked for by the number: tile (i, j) has those of rows of tile j."""

import numpy as np
from honest import BF16, by_blocks, f32

SOURCE = "https://github.com/NVIDIA/cutlass/issues/3394"
LINE = "fp8_blockwise_scaled_mm M=256 N=256 K=128"
NAMES = r"scales_a.*(tile|rows|other|column)"


def kernel(x, wrong):
    scales_a, scales_b = f32(x.scales_a), f32(x.scales_b.T)
    total = np.zeros((256, 256), np.float32)
    for i in (0, 128):
        for j in (0, 128):
            rows = scales_a[j : j + 128] if wrong else scales_a[i : i + 128]
            total[i : i + 128, j : j + 128] = by_blocks(x.mat_a[i : i + 128], rows, x.mat_b.T[j : j + 128], scales_b[j // 128 : j // 128 + 1])
    return {"out": total.astype(BF16)}
