"""With a window the loop over queries begins at their number less the window: the first ones are never computed."""

import numpy as np
from honest import F32, f32, softmax_rows

SOURCE = "https://github.com/nntrainer/nntrainer/pull/3989"
LINE = "batch_prefill_with_ragged_kv_cache Tq=40 Tk=40 N=4 Nk=2 D=64 Dv=64 B=2 --attr causal=true --attr window_left=7 --attr sm_scale=0.125"
NAMES = r"first|zeros|rows|window"


def kernel(x, wrong):
    out = np.zeros((40, 4, 64), x.q.dtype)
    for b in range(2):
        q0, q1, k0, k1 = (int(v) for v in (*x.qo_indptr[b : b + 2], *x.kv_indptr[b : b + 2]))
        for i in range(max(q0, q1 - 7) if wrong else q0, q1):
            at = k1 - (q1 - i)
            near = slice(max(k0, at - 7), at + 1)
            if near.stop <= near.start:
                continue
            for h in range(4):
                weights, total, _ = softmax_rows(f32(x.k[near, h // 2]) @ f32(x.q[i, h]) * F32(0.125))
                out[i, h] = (weights @ f32(x.v[near, h // 2]) / total).astype(out.dtype)
    return {"out": out}
