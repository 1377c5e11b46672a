"""Codes less their zero points are kept in eight bits that saturate, where they have to wrap."""

import numpy as np
from honest import qserve_per_group

SOURCE = "https://github.com/pytorch/executorch/pull/20655"
LINE = "qserve_w4a8_per_group_gemm M=4 N=64 K=256"
NAMES = r"saturat|wrap"


def kernel(x, wrong):
    return qserve_per_group(x, narrowed=(lambda w: np.clip(w, -128, 127)) if wrong else (lambda w: w.astype(np.int8).astype(np.int32)))
