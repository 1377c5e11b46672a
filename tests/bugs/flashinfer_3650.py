"""One NaN in a row of the input spoils the valid rows of its tile."""

import numpy as np
from honest import fp8_blockwise_scaled_mm

SOURCE = "https://github.com/flashinfer-ai/flashinfer/issues/3650"
LINE = "fp8_blockwise_scaled_mm M=32 N=128 K=256"
NAMES = r"NaN where golden has none"


def edit(inputs):
    a = inputs["mat_a"].copy()
    a[5, 7] = np.nan
    return {"mat_a": a}


def kernel(x, wrong):
    out = fp8_blockwise_scaled_mm(x)
    if wrong:
        out["out"][:16] = np.nan
    return out
