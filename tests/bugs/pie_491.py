"""Zero points are taken in the order of the channels, without the interleaving that the codes have."""

import numpy as np
from gptqmodel_2351 import nibbles
from honest import f32

SOURCE = "https://github.com/pie-project/pie/pull/491"
LINE = "awq_dequantize K=64 N=64 G=4"
NAMES = r"qzeros|zero points"


def kernel(x, wrong):
    zeros = nibbles(x.qzeros)
    if wrong:
        words = x.qzeros.view(np.uint32)
        zeros = np.stack([(words >> np.uint32(4 * n)) & 15 for n in range(8)], -1).reshape(zeros.shape).astype(np.int32)
    group = np.arange(64) // 16
    return {"out": (f32(nibbles(x.qweight) - zeros[group]) * f32(x.scales[group])).astype(x.scales.dtype)}
