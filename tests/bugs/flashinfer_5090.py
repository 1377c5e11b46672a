"""Keys that fill the last block of 64 are zeros, whose scores are 0: they are counted."""

import numpy as np
from honest import F32, f32, softmax_rows

SOURCE = "https://github.com/flashinfer-ai/flashinfer/pull/5090"
LINE = "batch_prefill_with_ragged_kv_cache Tq=20 Tk=90 N=4 Nk=2 D=64 Dv=64 B=2 --attr sm_scale=0.125"
NAMES = r"tile|fill|count|zeros"


def kernel(x, wrong):
    out = np.zeros((20, 4, 64), x.q.dtype)
    for b in range(2):
        q, k = slice(*x.qo_indptr[b : b + 2]), slice(*x.kv_indptr[b : b + 2])
        fill = -(k.stop - k.start) % 64 if wrong else 0
        for h in range(4):
            scores = f32(x.q[q, h]) @ f32(x.k[k, h // 2]).T * F32(0.125)
            if scores.size == 0:
                continue
            weights, total, _ = softmax_rows(np.concatenate([scores, np.zeros((len(scores), fill), F32)], 1))
            out[q, h] = (weights[:, : k.stop - k.start] @ f32(x.v[k, h // 2]) / total).astype(out.dtype)
    return {"out": out}
