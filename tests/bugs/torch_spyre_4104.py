"""A row's maximum is that of all its tiles, its sum lacks one of four."""

import numpy as np
from honest import f32

SOURCE = "https://github.com/torch-spyre/torch-spyre/issues/4104"
LINE = "softmax B=16 V=256"
NAMES = r"sum.*(lack|miss|without|left out|64|not|192)|(64|192|last|tile).*(sum|added)"


def kernel(x, wrong):
    logits = f32(x.logits)
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return {"probs": weights / weights[:, : 192 if wrong else 256].sum(-1, keepdims=True, dtype=np.float32)}
