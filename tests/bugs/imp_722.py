"""Two codes of a byte are taken for neighbours, where the low ones are the first half of a block."""

import numpy as np
from gptqmodel_2351 import nibbles
from honest import f32

SOURCE = "https://github.com/kekzl/imp/pull/722"
LINE = "awq_dequantize K=64 N=64 G=4"
NAMES = r"codes of a word"


def in_order(words):
    words = words.view(np.uint32)
    return np.stack([(words >> np.uint32(4 * n)) & 15 for n in range(8)], -1).reshape(*words.shape[:-1], -1).astype(np.int32)


def kernel(x, wrong):
    take = in_order if wrong else nibbles
    codes, zeros = take(x.qweight), take(x.qzeros)
    each = len(codes) // len(zeros)
    return {"out": (f32(codes - np.repeat(zeros, each, 0)) * f32(np.repeat(x.scales, each, 0))).astype(x.scales.dtype)}
