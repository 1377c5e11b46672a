"""Scales of a K that is no multiple of 256 are written at the stride of the unpadded matrix."""

import numpy as np
from honest import mxfp4_quantize, tile_place

SOURCE = "https://github.com/ROCm/aiter/pull/2900"
LINE = "mxfp4_quantize M=160 K=96"
NAMES = r"logical|padded|stride"


def kernel(x, wrong):
    exponent = lambda amax: np.ceil(np.log2(amax * np.float32(1 / 6))) + 127
    return mxfp4_quantize(x, exponent, place=lambda r, g, columns: tile_place((r * 3 + g) // columns, (r * 3 + g) % columns, columns) if wrong else tile_place(r, g, columns))
