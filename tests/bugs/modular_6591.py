"""A row's sink is that of its number modulo the heads, rows of queries and heads being counted together."""

import numpy as np
from honest import F32, f32, softmax_rows

SOURCE = "https://github.com/modular/modular/pull/6591"
LINE = "batch_prefill_with_ragged_kv_cache Tq=21 Tk=60 N=4 Nk=2 D=64 Dv=64 B=2 --attr sm_scale=0.125 --with sinks"
NAMES = r"sinks"


def kernel(x, wrong):
    out = np.zeros((21, 4, 64), x.q.dtype)
    for b in range(2):
        q, k = slice(*x.qo_indptr[b : b + 2]), slice(*x.kv_indptr[b : b + 2])
        count = q.stop - q.start
        for h in range(4):
            if count == 0:
                continue
            scores = f32(x.q[q, h]) @ f32(x.k[k, h // 2]).T * F32(0.125)
            row = (h * count + np.arange(count)) % 4
            sink = f32(x.sinks)[row if wrong else np.full(count, h)][:, None]
            both = np.concatenate([scores, sink], 1)
            weights, total, _ = softmax_rows(both)
            out[q, h] = (weights[:, :-1] @ f32(x.v[k, h // 2]) / total).astype(out.dtype)
    return {"out": out}
