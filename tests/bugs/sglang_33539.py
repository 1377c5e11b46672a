"""Of tokens that equal the k-th as many are kept as make k, by rank, where all are."""

import numpy as np
from honest import f32, largest

SOURCE = "https://github.com/sgl-project/sglang/pull/33539"
LINE = "top_k_renorm_prob B=6 V=400 --attr top_k=20 --dist ties"
NAMES = r"exactly k|ties|equal"


def kernel(x, wrong):
    probs = f32(x.probs)
    least = np.sort(probs, -1)[:, -20][:, None]
    kept = np.where(probs >= least, probs, 0)
    if wrong:
        ids = largest(probs, 20)
        kept = np.zeros_like(probs)
        np.put_along_axis(kept, ids, np.take_along_axis(probs, ids, -1), -1)
    return {"renorm_probs": (kept / np.maximum(kept.sum(-1, keepdims=True, dtype=np.float32), np.float32(1e-8))).astype(np.float32)}
