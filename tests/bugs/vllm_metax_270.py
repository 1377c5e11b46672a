"""At 128 experts and 8 chosen the weights are those of a softmax; the choice is right."""

import numpy as np
from honest import f32, largest, sigmoid

SOURCE = "https://github.com/MetaX-MACA/vLLM-metax/issues/270"
LINE = "topk_sigmoid T=11 E=128 topk=8"
NAMES = r"softmax"


def kernel(x, wrong):
    logits = f32(x.gating_output)
    scores = sigmoid(logits)
    ids = largest(scores, 8)
    shares = np.exp(logits - logits.max(-1, keepdims=True))
    shares = shares / shares.sum(-1, keepdims=True, dtype=np.float32)
    return {"topk_weights": np.take_along_axis(shares if wrong else scores, ids, -1), "topk_ids": ids.astype(np.int32)}
