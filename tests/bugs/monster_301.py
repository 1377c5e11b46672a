"""Blocks of 16 along K are counted by a division that drops the rest."""

import numpy as np
from honest import BF16, f32

SOURCE = "https://github.com/1bit-MONSTER/1bit-MONSTER/issues/301"
LINE = "bmm L=3 M=5 N=24 K=136"
NAMES = r"(K|index|128|16).*(left out|dropped|cut|not added|beyond|end|last|behind)|multiple of"


def kernel(x, wrong):
    end = 128 if wrong else 136
    return {"out": (f32(x.mat1[:, :, :end]) @ f32(x.mat2[:, :end])).astype(BF16)}
