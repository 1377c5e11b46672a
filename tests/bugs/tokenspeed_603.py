"""Weights are always normalized, though the model does not ask for it."""

import numpy as np
from honest import f32, largest

SOURCE = "https://github.com/lightseekorg/tokenspeed/pull/603"
LINE = "topk_softmax T=16 E=64 topk=4"
NAMES = r"renormalize"


def kernel(x, wrong):
    logits = f32(x.gating_output)
    shares = np.exp(logits - logits.max(-1, keepdims=True))
    shares = shares / shares.sum(-1, keepdims=True, dtype=np.float32)
    ids = largest(shares, 4)
    taken = np.take_along_axis(shares, ids, -1)
    return {"topk_weights": taken / taken.sum(-1, keepdims=True) if wrong else taken, "topk_ids": ids.astype(np.int32)}
