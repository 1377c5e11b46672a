"""A row of fewer than 32 columns: lanes that do not exist put 0 among the maxima, and what is far below 0 vanishes."""

import numpy as np
from honest import f32

SOURCE = "https://github.com/m0at/rvllm/pull/1"
LINE = "softmax B=12 V=17"
NAMES = r"maxim.*(0|zero|clamp)|(0|zero).*maxim"


def edit(inputs):  # rows far below 0
    logits = np.asarray(inputs["logits"]).astype(np.float32) * 3
    logits[::3] -= 110
    return {"logits": logits.astype(np.asarray(inputs["logits"]).dtype)}


def kernel(x, wrong):
    logits = f32(x.logits) / np.float32(getattr(x, "temperature", 1))
    most = logits.max(-1, keepdims=True)
    powers = np.exp(logits - (np.maximum(most, 0) if wrong else most))
    with np.errstate(all="ignore"):
        return {"probs": powers / powers.sum(-1, keepdims=True, dtype=np.float32)}
