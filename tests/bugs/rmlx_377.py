"""Codes are read as symmetric ones: 8 is taken off, whatever the zero point of a group."""

import numpy as np
from gptqmodel_2351 import nibbles
from honest import f32

SOURCE = "https://github.com/Pushkinist/rMLX/pull/377"
LINE = "awq_dequantize K=96 N=64 G=3"
NAMES = r"qzeros.*(8|ignored)|zero point.*8"


def kernel(x, wrong):
    group = np.arange(96) // 32
    codes, zeros = nibbles(x.qweight), nibbles(x.qzeros)
    return {"out": (f32(codes - (8 if wrong else zeros[group])) * f32(x.scales[group])).astype(x.scales.dtype)}
