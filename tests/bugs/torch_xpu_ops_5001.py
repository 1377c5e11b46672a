"""The number of a group is made by a quotient cut to 0 before it is multiplied: every group has the first one's scale and zero point."""

import numpy as np
from gptqmodel_2351 import nibbles
from honest import f32

SOURCE = "https://github.com/intel/torch-xpu-ops/pull/5001"
LINE = "awq_dequantize K=128 N=64 G=4"
NAMES = r"first.*(group|scale)"


def kernel(x, wrong):
    group = np.arange(128) // 32 * (0 if wrong else 1)
    codes, zeros = nibbles(x.qweight), nibbles(x.qzeros)
    return {"out": (f32(codes - zeros[group]) * f32(x.scales[group])).astype(x.scales.dtype)}
