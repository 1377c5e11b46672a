"""The log-sum-exp is that of the part of the keys which one group of threads had, not of all."""

import numpy as np
from honest import prefill, f32

SOURCE = "https://github.com/flashinfer-ai/flashinfer/pull/58"
LINE = "batch_prefill_with_ragged_kv_cache Tq=12 Tk=64 N=4 Nk=2 D=64 Dv=64 B=2 --attr sm_scale=0.125 --attr return_lse=true"
NAMES = r"lse.*(part|half|not of all)"

UNNAMED = "which part of the keys it was is the kernel's own"


def kernel(x, wrong):
    out = prefill(x)
    for b in range(len(x.qo_indptr) - 1) if wrong else ():
        first, end = x.kv_indptr[b], x.kv_indptr[b + 1]
        rows, keys = slice(x.qo_indptr[b], x.qo_indptr[b + 1]), slice(first, first + -(-(end - first) // 2))
        for h in range(x.q.shape[1]):
            scores = f32(x.q[rows, h]) @ f32(x.k[keys, h // 2]).T * np.float32(x.sm_scale)
            if scores.size:
                most = scores.max(-1, keepdims=True)
                out["lse"][rows, h] = (most[:, 0] + np.log(np.exp(scores - most).sum(-1))) * np.float32(1.4426950408889634)
    return out
