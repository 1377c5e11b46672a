"""Divided by the reciprocal square root instead of multiplied with it."""

import numpy as np
from honest import rmsnorm

SOURCE = "https://github.com/mosaicml/llm-foundry/issues/371"
LINE = "rmsnorm T=9 H=384"
NAMES = r"multipl.*(root|rms)|divided by.*(1 / |reciprocal|inverse)|inverse.*(twice|wrong)|not (inverted|divided)|root mean square.*(instead|not)"


def kernel(x, wrong):
    return rmsnorm(x, 1e-6, inverse=(lambda r: np.float32(1) / r) if wrong else (lambda r: r))
