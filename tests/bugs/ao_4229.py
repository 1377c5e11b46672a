"""The scales of B lie in rows of as many blocks as K has, and are read as if that number were rounded up to four."""

import numpy as np
from honest import fp8_blockwise_scaled_mm

SOURCE = "https://github.com/pytorch/ao/pull/4229"
LINE = "fp8_blockwise_scaled_mm M=16 N=512 K=768"
NAMES = r"scales_b.*(stride|apart|row|padded|8|multiple)"


def kernel(x, wrong):
    scales = np.ascontiguousarray(x.scales_b.T)
    if wrong:  # four columns of six blocks, read eight apart
        flat = np.concatenate([scales.reshape(-1), np.zeros(16, np.float32)])
        scales = np.stack([flat[n * 8 : n * 8 + 6] for n in range(4)])
    return fp8_blockwise_scaled_mm(x, scales_b=scales.T)
