"""With one expert a token the weights lose a dimension, and are divided by the sum over all tokens."""

import numpy as np
from honest import f32

SOURCE = "https://github.com/databricks/megablocks/pull/87"
LINE = "topk_softmax T=9 E=32 topk=1 --attr renormalize=true"
NAMES = r"(sum|divided|normali).*(tokens|rows|all|column)"

UNNAMED = "a sum over rows is no call of the op"


def kernel(x, wrong):
    logits = f32(x.gating_output)
    shares = np.exp(logits - logits.max(-1, keepdims=True))
    shares = shares / shares.sum(-1, keepdims=True, dtype=np.float32)
    ids = shares.argmax(-1, keepdims=True)
    weights = np.take_along_axis(shares, ids, -1)
    weights = weights / (weights.sum(dtype=np.float32) if wrong else weights)
    return {"topk_weights": weights.astype(np.float32), "topk_ids": ids.astype(np.int32)}
