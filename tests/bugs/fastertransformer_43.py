"""Exponentials of the scores as they are, without their row's maximum taken off first."""

import numpy as np
from honest import f32

SOURCE = "https://github.com/NVIDIA/FasterTransformer/issues/43"
LINE = "softmax B=6 V=500"
NAMES = r"maximum"


def edit(inputs):
    return {"logits": f32(inputs["logits"]) + np.array([80, 86, 88, 92, -95, 0], np.float32)[:, None]}


def kernel(x, wrong):
    scores = f32(x.logits)
    with np.errstate(all="ignore"):
        weights = np.exp(scores if wrong else scores - scores.max(-1, keepdims=True))
        return {"probs": weights / weights.sum(-1, keepdims=True, dtype=np.float32)}
