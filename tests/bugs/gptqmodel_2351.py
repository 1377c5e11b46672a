"""A zero point of 0 becomes 15: one is taken off before it is packed again, which leaves four bits set of -1."""

import numpy as np
from honest import f32

SOURCE = "https://github.com/ModelCloud/GPTQModel/pull/2351"
LINE = "awq_dequantize K=64 N=64 G=4"
NAMES = r"qzeros"
ORDER = [0, 4, 1, 5, 2, 6, 3, 7]


def nibbles(words):
    words = words.view(np.uint32)
    return np.stack([(words >> np.uint32(4 * n)) & 15 for n in ORDER], -1).reshape(*words.shape[:-1], -1).astype(np.int32)


def kernel(x, wrong):
    codes, zeros = nibbles(x.qweight), nibbles(x.qzeros)
    if wrong:
        zeros = np.where(zeros == 0, 15, zeros)
    each = len(codes) // len(zeros)
    return {"out": (f32(codes - np.repeat(zeros, each, 0)) * f32(np.repeat(x.scales, each, 0))).astype(x.scales.dtype)}
