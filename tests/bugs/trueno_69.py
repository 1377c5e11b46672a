"""Threads without an output return before they have loaded their part: of each 32 of K those of the other threads are still zero."""

import numpy as np
from honest import BF16, f32

SOURCE = "https://github.com/paiml/trueno/issues/69"
LINE = "linear T=4 N=8 K=128"
NAMES = r"\bK\b|depth"
UNNAMED = "of each 32 of K some count, and there are too few outputs to say which"


def kernel(x, wrong):
    k = np.arange(128)
    kept = (k % 32 < 8) & (k % 32 < 4) if wrong else k >= 0
    return {"output": (f32(x.input)[:, kept] @ f32(x.weight)[:, kept].T).astype(BF16)}
