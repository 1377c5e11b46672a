"""Of equal shares the last one wins, where the first has to."""

import numpy as np
from honest import f32

SOURCE = "https://github.com/ohdearquant/lattice/issues/282"
LINE = "topk_softmax T=24 E=64 topk=4 --attr renormalize=true --dist ties"
NAMES = r"tie|equal|last|higher"


def kernel(x, wrong):
    logits = f32(x.gating_output)
    shares = np.exp(logits - logits.max(-1, keepdims=True))
    shares = shares / shares.sum(-1, keepdims=True, dtype=np.float32)
    ids = 63 - np.argsort(-shares[:, ::-1], axis=-1, kind="stable")[:, :4] if wrong else np.argsort(-shares, axis=-1, kind="stable")[:, :4]
    taken = np.take_along_axis(shares, ids, 1)
    return {"topk_weights": (taken / taken.sum(-1, keepdims=True, dtype=np.float32)).astype(np.float32), "topk_ids": ids.astype(np.int32)}
