"""The correction bias is added to the logits before the softmax and to the shares behind it, and stays in the weights."""

import numpy as np
from honest import f32, largest

SOURCE = "https://github.com/ROCm/aiter/pull/4247"
LINE = "topk_softmax T=9 E=64 topk=6 --with correction_bias"
NAMES = r"(correction_)?bias.*(twice|softmax|shares)|twice.*bias"

UNNAMED = "two additions of one bias are two mistakes"


def kernel(x, wrong):
    logits = f32(x.gating_output) + x.correction_bias
    shares = np.exp(logits - logits.max(-1, keepdims=True))
    shares = shares / shares.sum(-1, keepdims=True, dtype=np.float32)
    if wrong:
        shares = shares + x.correction_bias
    ids = largest(shares, x.topk_ids.shape[1] if hasattr(x, "topk_ids") else 6)
    return {"topk_weights": np.take_along_axis(shares, ids, -1), "topk_ids": ids.astype(np.int32)}
