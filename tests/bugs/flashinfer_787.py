"""2^x is computed of scores that were not multiplied with log2 e."""

import numpy as np
from honest import cutlass_mla_decode

SOURCE = "https://github.com/flashinfer-ai/flashinfer/pull/787"
LINE = "cutlass_mla_decode B=4 N=16 pages=24 P=16 W=8 --attr sm_scale=0.1352337788608801"
NAMES = r"ln 2|log2 e|other base"


def kernel(x, wrong):
    return cutlass_mla_decode(x, exponential=np.exp2 if wrong else np.exp)
