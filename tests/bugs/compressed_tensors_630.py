"""The exponent is cut toward zero where it is to be rounded up: right below 1, one too small above."""

import numpy as np
from honest import mxfp8_quantize

SOURCE = "https://github.com/vllm-project/compressed-tensors/pull/630"
LINE = "mxfp8_quantize M=33 K=256 --dist wide-exponent"
NAMES = r"sf|scale|exponent"


def kernel(x, wrong):
    return mxfp8_quantize(x, lambda r: np.where(r > 0, (np.trunc if wrong else np.ceil)(np.log2(np.where(r > 0, r, 1))), -127))
