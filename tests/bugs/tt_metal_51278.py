"""In a row's last tile the sum is made of exponentials of the scores themselves, not of what they are below the maximum."""

import numpy as np
from honest import f32

SOURCE = "https://github.com/tenstorrent/tt-metal/issues/51278"
LINE = "softmax B=8 V=96"
NAMES = r"(last|tail|columns).*(maximum|shift|exponential)|(maximum|shift).*(last|tail)"


def kernel(x, wrong):
    logits = f32(x.logits)
    most = logits.max(-1, keepdims=True)
    weights = np.exp(logits - most)
    summed = np.concatenate([weights[:, :-32], np.exp(logits[:, -32:])], -1) if wrong else weights
    return {"probs": weights / summed.sum(-1, keepdims=True, dtype=np.float32)}
