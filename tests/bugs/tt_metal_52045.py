"""A row's exponentials are added up in bf16: small ones vanish in the sum."""

import numpy as np
from honest import BF16, f32, through

SOURCE = "https://github.com/tenstorrent/tt-metal/issues/52045"
LINE = "softmax B=6 V=2048"
NAMES = r"(sum|added|accumul).*(bf16|16 bits|rounded|type)|bf16"


def kernel(x, wrong):
    logits = f32(x.logits)
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    total = weights.sum(-1, keepdims=True, dtype=np.float32)
    if wrong:  # tile by tile of 32 columns
        total = np.zeros((6, 1), np.float32)
        for c in range(0, 2048, 32):
            total = through(BF16, total + weights[:, c : c + 32].sum(-1, keepdims=True, dtype=np.float32))
    return {"probs": weights / total}
