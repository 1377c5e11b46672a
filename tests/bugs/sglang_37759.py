"""Of the groups in one tile of K only the first one's zero points are loaded: scales are right, the others have that group's zero points."""

import numpy as np
from gptqmodel_2351 import nibbles
from honest import f32

SOURCE = "https://github.com/sgl-project/sglang/pull/37759"
LINE = "awq_dequantize K=128 N=64 G=4"
NAMES = r"qzeros.*(first|group)"


def kernel(x, wrong):
    group = np.arange(128) // 32
    codes, zeros = nibbles(x.qweight), nibbles(x.qzeros)
    return {"out": (f32(codes - zeros[group // 2 * 2 if wrong else group]) * f32(x.scales[group])).astype(x.scales.dtype)}
