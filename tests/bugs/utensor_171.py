"""The sum that a row is divided by is that of all rows."""

import numpy as np
from honest import f32

SOURCE = "https://github.com/uTensor/uTensor/pull/171"
LINE = "softmax B=6 V=500"
NAMES = r"(all|every|other) (rows|requests)|whole (tensor|matrix)|along B"


def kernel(x, wrong):
    logits = f32(x.logits)
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return {"probs": weights / (weights.sum(dtype=np.float32) if wrong else weights.sum(-1, keepdims=True, dtype=np.float32))}
