"""A block's scale is the power of two of its maximum itself: the largest code is 1 to 2, not 224 to 448."""

import numpy as np
from honest import mxfp8_quantize

SOURCE = "https://github.com/vllm-project/vllm/pull/53110"
LINE = "mxfp8_quantize M=9 K=256"
NAMES = r"(scale|power).*(448|largest code|maximum itself|powers of two too large|not divided)"



def kernel(x, wrong):
    power = (lambda a: np.floor(np.log2(np.maximum(a * 448, 2.0**-127)))) if wrong else (lambda a: np.ceil(np.log2(np.maximum(a, 2.0**-127))))
    return mxfp8_quantize(x, power)
