"""Block scales are made for a largest code of 256, the power of two below e4m3's 448."""

import numpy as np
from honest import mxfp8_quantize

SOURCE = "https://github.com/vllm-project/vllm/pull/53674"
LINE = "mxfp8_quantize M=9 K=1536"
NAMES = r"256|largest code|power"


def kernel(x, wrong):
    return mxfp8_quantize(x, power=lambda m: np.ceil(np.log2(m * 448 / 256 if wrong else m)))
