"""Scales of rows and of columns are handed on as if there were one of each: the first serves all."""

import numpy as np
from honest import scaled_mm, with_lines

SOURCE = "https://github.com/ROCm/aiter/pull/1258"
LINE = "fp8_scaled_mm M=16 N=64 K=256"
NAMES = r"scales?.*(first|one for all|all)"


def kernel(x, wrong):
    if wrong:
        x = with_lines(x, scales_a=np.full_like(x.scales_a, x.scales_a.reshape(-1)[0]), scales_b=np.full_like(x.scales_b, x.scales_b.reshape(-1)[0]))
    return scaled_mm(x)
