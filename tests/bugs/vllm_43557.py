"""The power of two is taken of a sixth of the maximum, rounded down: one too small for many groups."""

import numpy as np
from honest import mxfp4_quantize

SOURCE = "https://github.com/vllm-project/vllm/pull/43557"
LINE = "mxfp4_quantize M=16 K=256"
NAMES = r"half|one too small|power"


def kernel(x, wrong):
    return mxfp4_quantize(x, exponent=lambda amax: np.floor(np.log2(amax / 6)) + 127 if wrong else np.ceil(np.log2(amax * np.float32(1 / 6))) + 127)
