"""The running maximum begins at -50000, which stands for minus infinity: where all scores lie below it, all weights vanish."""

import numpy as np
from honest import f32, softmax_rows

SOURCE = "https://github.com/flashinfer-ai/flashinfer/issues/4267"
LINE = "batch_prefill_with_ragged_kv_cache Tq=12 Tk=40 N=4 Nk=2 D=128 Dv=128 B=2 --attr sm_scale=0.0883883476"
NAMES = r"(maximum|scores?|logits?).*(-?5e\+?04|-?50000|finite|below|least|begin|start)"


def edit(inputs):
    q, k = np.array(inputs["q"]), np.array(inputs["k"])
    k[:, :, 0] = 1000
    q[:, :, 0] = 0
    q[3, 1, 0] = q[9, 2, 0] = -60
    return {"q": q, "k": k}


def kernel(x, wrong):
    out = np.zeros((*x.q.shape[:2], 128), x.q.dtype)
    for b in range(2):
        rows, keys = slice(x.qo_indptr[b], x.qo_indptr[b + 1]), slice(x.kv_indptr[b], x.kv_indptr[b + 1])
        for h in range(4):
            raw = f32(x.q[rows, h]) @ f32(x.k[keys, h // 2]).T
            if raw.size == 0:
                continue
            weights, total, most = softmax_rows(raw * np.float32(x.sm_scale))
            o = weights @ f32(x.v[keys, h // 2]) / total
            if wrong:
                o = np.where(raw.max(-1, keepdims=True) < -5e4, np.float32(0), o)
            out[rows, h] = o.astype(out.dtype)
    return {"out": out}
