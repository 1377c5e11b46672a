"""The exponent of a block of 32 is its maximum over six to the nearest power of two, not the next: the largest numbers saturate."""

import numpy as np
from honest import F32, mxfp4_quantize

SOURCE = "https://github.com/ROCm/FlyDSL/pull/590"
LINE = "mxfp4_quantize M=16 K=256"
NAMES = r"nearest"
UNNAMED = "told as scales for another largest code, not as their rounding"


def kernel(x, wrong):
    def exponent(amax):
        scale = (amax * F32(1 / 6)).astype(np.float32)
        bits = scale.view(np.uint32).astype(np.int64)
        up = (bits & 0x400000) > 0 if wrong else (bits & 0x7FFFFF) > 0
        return (bits >> 23) + up

    return mxfp4_quantize(x, exponent)
