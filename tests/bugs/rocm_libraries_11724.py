"""Each tile of 16 columns is multiplied with one scale, that of its first, though each column has its own."""

import numpy as np
from honest import f32, scaled_mm

SOURCE = "https://github.com/ROCm/rocm-libraries/issues/11724"
LINE = "fp8_scaled_mm M=24 N=64 K=256"
NAMES = r"scales_b.*16"


def kernel(x, wrong):
    scales = x.scales_b.reshape(-1)
    return scaled_mm(x, scales_b=scales[np.arange(64) // 16 * 16] if wrong else scales)
