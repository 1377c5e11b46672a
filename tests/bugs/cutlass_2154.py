"""Where the last tile of rows is not full none of its scales is copied: those of the tile before are still there."""

import numpy as np
from honest import fp8_blockwise_scaled_mm

SOURCE = "https://github.com/NVIDIA/cutlass/issues/2154"
LINE = "fp8_blockwise_scaled_mm M=88 N=128 K=256"
NAMES = r"scales_a"


def kernel(x, wrong):
    scales = np.array(x.scales_a)
    if wrong:
        scales[64:] = scales[:24]
    return fp8_blockwise_scaled_mm(x, scales_a=scales)
