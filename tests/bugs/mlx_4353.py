"""Scales become the nearest power of two, which lies below what the largest element needs half of the time."""

import numpy as np
from honest import mxfp8_quantize

SOURCE = "https://github.com/ml-explore/mlx/pull/4353"
LINE = "mxfp8_quantize M=4 K=1536"
NAMES = r"nearest power"


def kernel(x, wrong):
    return mxfp8_quantize(x, (lambda scale: np.rint(np.log2(scale))) if wrong else (lambda scale: np.ceil(np.log2(scale))))
