"""With tiles of K narrower than a block of scales the pointer to scales steps on by 0: the first ones serve all of K."""

import numpy as np
from honest import fp8_blockwise_scaled_mm

SOURCE = "https://github.com/sgl-project/sglang/pull/20819"
LINE = "fp8_blockwise_scaled_mm M=16 N=256 K=512"
NAMES = r"first (scale|group)"


def kernel(x, wrong):
    if not wrong:
        return fp8_blockwise_scaled_mm(x)
    return fp8_blockwise_scaled_mm(x, scales_a=np.repeat(x.scales_a[:, :1], 4, 1), scales_b=np.repeat(x.scales_b[:1], 4, 0))
