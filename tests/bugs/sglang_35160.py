"""Without renormalization the chosen logits themselves are returned as weights."""

import numpy as np
from honest import f32, largest

SOURCE = "https://github.com/sgl-project/sglang/pull/35160"
LINE = "topk_softmax T=8 E=64 topk=6"
NAMES = r"logit"


def kernel(x, wrong):
    logits = f32(x.gating_output)
    ids = largest(logits, x.topk_ids.shape[1] if hasattr(x, "topk_ids") else 6)
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    shares = logits if wrong else weights / weights.sum(-1, keepdims=True, dtype=np.float32)
    return {"topk_weights": np.take_along_axis(shares, ids, axis=-1), "topk_ids": ids.astype(np.int32)}
