"""Weights are written for the first 1408 tokens alone, ids for all."""

import numpy as np
from honest import f32, largest, sigmoid

SOURCE = "https://github.com/kvcache-ai/sglang/pull/68"
LINE = "topk_sigmoid T=1430 E=16 topk=4"
NAMES = r"rows 1408\.\.1429|1408"


def kernel(x, wrong):
    scores = sigmoid(x.gating_output)
    ids = largest(scores, 4)
    weights = np.take_along_axis(scores, ids, -1)
    if wrong:
        weights[1408:] = 0
    return {"topk_weights": weights, "topk_ids": ids.astype(np.int32)}
