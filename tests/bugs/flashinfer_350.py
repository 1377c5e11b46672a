"""The cap is applied behind the mask: what fills the last tile of keys has the score of minus the cap, not minus infinity."""

import numpy as np
from honest import f32, softmax_rows

SOURCE = "https://github.com/flashinfer-ai/flashinfer/pull/350"
LINE = "decode_attention_fwd B=4 N=4 Nk=2 S=60 n=90 D=64 --attr v_head_dim=64 --attr sm_scale=0.125 --attr logit_cap=3"
NAMES = r"(fill|padding|beyond|tile|masked|hidden).*(cap|count|sum|weight)|cap.*(mask|fill|hidden)"


def kernel(x, wrong):
    out, cap = np.zeros(x.q.shape, x.q.dtype), np.float32(x.logit_cap)
    for b in range(len(x.q)):
        slots = x.kv_indices[x.kv_indptr[b] : x.kv_indptr[b + 1]]
        for h in range(4):
            scores = cap * np.tanh(f32(x.k_buffer[slots, h // 2]) @ f32(x.q[b, h]) * np.float32(x.sm_scale) / cap)
            weights, total, most = softmax_rows(scores)
            if wrong:
                total = total + np.float32(-len(slots) % 32) * np.exp(-cap - most)
            out[b, h] = (weights @ f32(x.v_buffer[slots, h // 2]) / total).astype(out.dtype)
    return {"o": out}
