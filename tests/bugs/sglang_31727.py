"""Scales that lie by columns are read row by row."""

import numpy as np
from honest import fp8_blockwise_scaled_mm

SOURCE = "https://github.com/sgl-project/sglang/pull/31727"
LINE = "fp8_blockwise_scaled_mm M=16 N=256 K=512"
NAMES = r"read as row-major|row by row"


def kernel(x, wrong):
    return fp8_blockwise_scaled_mm(x, scales_a=np.ascontiguousarray(x.scales_a.T).reshape(x.scales_a.shape) if wrong else x.scales_a)
