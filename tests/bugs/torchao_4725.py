"""The largest magnitude is rounded to bf16 before its power of two is taken, which may be one more."""

import numpy as np
from honest import BF16, mxfp8_quantize, through

SOURCE = "https://github.com/pytorch/ao/pull/4725"
LINE = "mxfp8_quantize M=129 K=1536 --dtype input=f16"
NAMES = r"bf16"


def kernel(x, wrong):
    return mxfp8_quantize(x, lambda scale: np.ceil(np.log2(scale)), largest=lambda amax: through(BF16, amax) if wrong else amax)
