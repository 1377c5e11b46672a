"""A lane's four columns are multiplied with the scales of four rows, its own and the three behind it."""

import numpy as np
from honest import f32, scaled_mm

SOURCE = "https://github.com/ROCm/composable_kernel/pull/3765"
LINE = "int8_scaled_mm M=32 N=64 K=256"
NAMES = r"scales_a.*(row|next|behind|column|neighbour|of every)"


def kernel(x, wrong):
    if not wrong:
        return scaled_mm(x)
    sums = f32(x.mat_a.astype(np.int64) @ x.mat_b.astype(np.int64))
    rows = np.arange(len(x.mat_a))[:, None] + np.arange(sums.shape[1])[None] % 4
    scales = np.concatenate([x.scales_a.reshape(-1), np.zeros(4, np.float32)])[rows]
    return {"out": (sums * x.scales_b.reshape(1, -1) * scales).astype(scaled_mm(x)["out"].dtype)}
