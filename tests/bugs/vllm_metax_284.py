"""A sigmoid router returns softmax shares of the experts that it chose."""

import numpy as np
from honest import f32, largest, sigmoid

SOURCE = "https://github.com/MetaX-MACA/vLLM-metax/pull/284"
LINE = "topk_sigmoid T=16 E=128 topk=8"
NAMES = r"softmax"


def kernel(x, wrong):
    logits = f32(x.gating_output)
    ids = largest(sigmoid(logits), 8)
    scores = np.exp(logits - logits.max(-1, keepdims=True))
    weights = scores / scores.sum(-1, keepdims=True) if wrong else sigmoid(logits)
    return {"topk_weights": np.take_along_axis(weights, ids, -1), "topk_ids": ids.astype(np.int32)}
