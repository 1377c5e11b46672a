"""Queries of request b are read from token b on: a request's stride is one token."""

import numpy as np
from honest import f32, softmax_rows

SOURCE = "https://github.com/flashinfer-ai/flashinfer/issues/3800"
LINE = "batch_prefill_with_ragged_kv_cache Tq=24 Tk=70 N=4 Nk=2 D=64 Dv=64 B=3 --attr sm_scale=0.125"
NAMES = r"\bq\b.*(request|row|token|further|earlier|looked)|qo_indptr"


def edit(inputs):
    return {"qo_indptr": np.array([0, 8, 16, 24], inputs["qo_indptr"].dtype)}


def kernel(x, wrong):
    out = np.zeros((24, 4, 64), x.q.dtype)
    for b in range(3):
        rows, keys = slice(b * 8, b * 8 + 8), slice(x.kv_indptr[b], x.kv_indptr[b + 1])
        read = slice(b, b + 8) if wrong else rows
        for h in range(4):
            if keys.stop > keys.start:
                weights, total, _ = softmax_rows(f32(x.q[read, h]) @ f32(x.k[keys, h // 2]).T * np.float32(0.125))
                out[rows, h] = (weights @ f32(x.v[keys, h // 2]) / total).astype(out.dtype)
    return {"out": out}
