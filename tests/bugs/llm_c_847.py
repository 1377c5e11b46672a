"""A warp's share of the sum is set to zero after it was written: the row is divided by a sum that lacks one warp's terms."""

import numpy as np
from honest import f32

SOURCE = "https://github.com/karpathy/llm.c/pull/847"
LINE = "softmax B=6 V=1024"
NAMES = r"sum.*(lacks|left out|part|share|without)"


def kernel(x, wrong):
    logits = f32(x.logits) / np.float32(getattr(x, "temperature", 1))
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    counted = powers.copy()
    if wrong:
        counted[:, (np.arange(1024) % 256) // 32 == 1] = 0
    return {"probs": powers / counted.sum(-1, keepdims=True, dtype=np.float32)}
