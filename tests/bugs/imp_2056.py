"""Each of 256 threads proposes one expert: those from 256 on are never chosen."""

import numpy as np
from honest import f32, largest

SOURCE = "https://github.com/kekzl/imp/pull/2056"
LINE = "topk_softmax T=9 E=512 topk=8"
NAMES = r"256"


def kernel(x, wrong):
    logits = f32(x.gating_output)
    shares = np.exp(logits - logits.max(-1, keepdims=True))
    shares = shares / shares.sum(-1, keepdims=True, dtype=np.float32)
    ids = largest(shares[:, :256] if wrong else shares, 8)
    return {"topk_weights": np.take_along_axis(shares, ids, -1), "topk_ids": ids.astype(np.int32)}
