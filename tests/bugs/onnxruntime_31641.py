"""A request's keys are bounded by the end of all keys, not by where the next request's begin."""

import numpy as np
from honest import f32, softmax_rows

SOURCE = "https://github.com/microsoft/onnxruntime/pull/31641"
LINE = "batch_prefill_with_ragged_kv_cache Tq=8 Tk=60 N=4 Nk=2 D=64 Dv=64 B=3 --attr sm_scale=0.125"
NAMES = r"(kv_indptr|keys?).*(next|other|end|all|last|beyond)"


def kernel(x, wrong):
    out = np.zeros((*x.q.shape[:2], x.v.shape[-1]), x.q.dtype)
    group = x.q.shape[1] // x.k.shape[1]
    for b in range(len(x.qo_indptr) - 1):
        rows, keys = slice(x.qo_indptr[b], x.qo_indptr[b + 1]), slice(x.kv_indptr[b], len(x.k) if wrong else x.kv_indptr[b + 1])
        if x.kv_indptr[b] == keys.stop:
            continue
        for h in range(x.q.shape[1]):
            weights, total, _ = softmax_rows(f32(x.q[rows, h]) @ f32(x.k[keys, h // group]).T * np.float32(x.sm_scale))
            out[rows, h] = (weights @ f32(x.v[keys, h // group]) / total).astype(out.dtype)
    return {"out": out}
