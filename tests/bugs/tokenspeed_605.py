"""The place of a maximum is the sum of the places that hold it: where two are equal it is no place, or another's."""

import numpy as np
from honest import F32, f32

SOURCE = "https://github.com/lightseekorg/tokenspeed/pull/605"
LINE = "topk_softmax T=12 E=64 topk=4 --dtype gating_output=bf16 --dist ties"
NAMES = r"tie|equal|same"
UNNAMED = "of equal scores all are struck out with the first: no input has them so"


def kernel(x, wrong):
    logits = f32(x.gating_output)
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    shares = powers / powers.sum(-1, keepdims=True, dtype=F32)
    left, weights, ids = shares.copy(), np.zeros((12, 4), F32), np.zeros((12, 4), np.int32)
    for t in range(12):
        for k in range(4):
            most = left[t].max()
            where = np.flatnonzero(left[t] == most)
            weights[t, k], ids[t, k] = most, where.max() if wrong else where[0]
            left[t, where if wrong else where[0]] = -1
    return {"topk_weights": weights, "topk_ids": ids}
