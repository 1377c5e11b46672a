"""One vector of 32 numbers is exponentiated, summed and divided; what lies behind it stays as it is."""

import numpy as np
from honest import f32

SOURCE = "https://github.com/lucienhuangfu/eLLM/issues/53"
LINE = "softmax B=6 V=50"
NAMES = r"32"


def kernel(x, wrong):
    probs = f32(x.logits).copy()
    seen = slice(0, 32 if wrong else 50)
    weights = np.exp(probs[:, seen] - probs[:, seen].max(-1, keepdims=True))
    probs[:, seen] = weights / weights.sum(-1, keepdims=True, dtype=np.float32)
    return {"probs": probs}
