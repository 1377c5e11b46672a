"""With K in two parts, the second part is scaled with the first part's scales."""

import numpy as np
from honest import fp8_blockwise_scaled_mm

SOURCE = "https://github.com/NVIDIA/cutlass/issues/3615"
LINE = "fp8_blockwise_scaled_mm M=16 N=256 K=1024"
NAMES = r"first half of K"


def kernel(x, wrong):
    halves = (lambda s: np.concatenate([s[:, : s.shape[1] // 2]] * 2, 1)) if wrong else (lambda s: s)
    return fp8_blockwise_scaled_mm(x, scales_a=halves(x.scales_a), scales_b=halves(x.scales_b.T).T)
