"""Rows of the left matrix are one stick apart on the device, not a row: every row is made of the first."""

import numpy as np
from honest import BF16, f32

SOURCE = "https://github.com/torch-spyre/torch-spyre/pull/4373"
LINE = "linear T=12 N=64 K=128"
NAMES = r"first row|row 0|input.*(first|row 0|nowhere)"


def kernel(x, wrong):
    rows = np.repeat(x.input[:1], 12, axis=0) if wrong else x.input
    return {"output": (f32(rows) @ f32(x.weight).T).astype(BF16)}
