"""Strides are not asked for: rows of a matrix that lies transposed are read as if they lay in a row each."""

import numpy as np
from honest import f32

SOURCE = "https://github.com/flagos-ai/Torch-FL/pull/172"
LINE = "softmax B=24 V=24"
NAMES = r"transpos|read as|row by row|row-major"
UNNAMED = "a matrix of as many rows as columns may be transposed, or its maxima another axis'"


def kernel(x, wrong):
    logits = f32(x.logits.T) if wrong else f32(x.logits)
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return {"probs": weights / weights.sum(-1, keepdims=True, dtype=np.float32)}
