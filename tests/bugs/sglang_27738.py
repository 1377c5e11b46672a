"""Slots of the new tokens are listed among those of the prefix: their keys count twice, the first time without a mask."""

import numpy as np
from honest import f32, softmax_rows

SOURCE = "https://github.com/sgl-project/sglang/pull/27738"
LINE = "extend_attention_fwd T=14 N=4 Nk=2 D=64 Dv=64 B=2 S=90 n=50 --attr sm_scale=0.125"
NAMES = r"(new|extend).*(twice|prefix|again)|twice"
UNNAMED = "keys that count twice, once without a mask, are no call of the op"


def kernel(x, wrong):
    heads = x.q_extend.shape[1]
    out = np.zeros(x.q_extend.shape, x.q_extend.dtype)
    for b in range(len(x.qo_indptr) - 1):
        new = slice(x.qo_indptr[b], x.qo_indptr[b + 1])
        slots = x.kv_indices[x.kv_indptr[b] : x.kv_indptr[b + 1]]
        for h in range(heads):
            g = h // (heads // x.k_extend.shape[1])
            parts = [(x.k_buffer[slots, g], x.v_buffer[slots, g])] + [(x.k_extend[new, g], x.v_extend[new, g])] * (2 if wrong else 1)
            keys, values = (np.concatenate([f32(p[i]) for p in parts]) for i in (0, 1))
            count = new.stop - new.start
            for i in range(count):
                seen = len(keys) - count + i + 1
                weights, total, _ = softmax_rows(keys[:seen] @ f32(x.q_extend[new.start + i, h]) * np.float32(x.sm_scale))
                out[new.start + i, h] = (weights @ values[:seen] / total).astype(out.dtype)
    return {"o_extend": out}
