"""Blocks add to one sum and divide by it without waiting: each divides by what had been added until then."""

import numpy as np
from honest import f32

SOURCE = "https://github.com/xlite-dev/LeetCUDA/issues/251"
LINE = "softmax B=4 V=1024"
NAMES = r"sum.*(so far|before|until|running|block|chunk|part|without|lack)|(block|columns|chunk|part).*(sum|factor|divid)"
UNNAMED = "what had been added so far is each block's own"


def kernel(x, wrong):
    logits = f32(x.logits)
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    sums = weights.reshape(4, 4, 256).sum(-1, dtype=np.float32)
    total = np.repeat(np.cumsum(sums, -1), 256, -1) if wrong else sums.sum(-1, keepdims=True)
    return {"probs": weights / total}
