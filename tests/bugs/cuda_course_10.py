"""Each thread takes the maximum of its own numbers for that of the row, and the sum is made of exponentials below as many maxima."""

import numpy as np
from honest import f32

SOURCE = "https://github.com/Infatoshi/cuda-course/issues/10"
LINE = "softmax B=6 V=2048"
NAMES = r"maxim"


def kernel(x, wrong):
    logits = f32(x.logits) / np.float32(getattr(x, "temperature", 1))
    most = logits.max(-1, keepdims=True)
    if wrong:
        most = np.tile(logits.reshape(len(logits), -1, 256).max(1), (1, 8))
    powers = np.exp(logits - most)
    return {"probs": powers / powers.sum(-1, keepdims=True, dtype=np.float32)}
