"""Beyond 8 queries of a call indices that are to be skipped are taken as row 0."""

import numpy as np
from honest import BF16, F32, f32, softmax_rows

SOURCE = "https://github.com/flashinfer-ai/flashinfer/issues/5095"
LINE = "flash_mla_sparse_fwd T=10 N=2 S=60 topk=128 --attr sm_scale=0.0721687836"
NAMES = r"absent|indices|index|skip"


def kernel(x, wrong):
    out, most_of, lse = np.zeros((10, 2, 512), BF16), np.zeros((10, 2), F32), np.zeros((10, 2), F32)
    rows = f32(x.kv).reshape(60, 576)
    for t in range(10):
        at = x.indices[t].reshape(-1)
        there = (at >= 0) & (at < 60)
        keys = rows[np.where(there, at, 0)] if wrong else rows[at[there]]
        scores = f32(x.q[t]) @ keys.T * F32(x.sm_scale)
        if scores.size == 0:
            most_of[t], lse[t] = -np.inf, -np.inf
            continue
        weights, total, most = softmax_rows(scores)
        out[t] = (weights @ keys[:, :512] / total).astype(BF16)
        most_of[t] = most[:, 0] * F32(1.4426950408889634)
        lse[t] = (most + np.log(total))[:, 0] * F32(1.4426950408889634)
    return {"out": out, "max_logits": most_of, "lse": lse}
