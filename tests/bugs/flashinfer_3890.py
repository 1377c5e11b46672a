"""The cap is applied behind the mask: lanes of a tile that hold no key have a score of -cap, and count."""

import numpy as np
from honest import f32, softmax_rows

SOURCE = "https://github.com/flashinfer-ai/flashinfer/pull/3890"
LINE = "decode_attention_fwd B=3 N=4 Nk=2 S=90 n=140 D=192 --attr v_head_dim=128 --attr sm_scale=0.0721687836 --attr logit_cap=2"
NAMES = r"cap.*(no key|empty|hidden|masked)|(no key|empty|hidden|masked).*cap"


def kernel(x, wrong):
    heads, group = x.q.shape[1], x.q.shape[1] // x.k_buffer.shape[1]
    out = np.zeros((*x.q.shape[:2], x.v_head_dim), x.q.dtype)
    cap = np.float32(x.logit_cap)
    for b in range(len(x.q)):
        slots = x.kv_indices[x.kv_indptr[b] : x.kv_indptr[b + 1]]
        for h in range(heads):
            scores = keys = f32(x.k_buffer[slots, h // group])
            scores = cap * np.tanh(keys @ f32(x.q[b, h]) * np.float32(x.sm_scale) / cap)
            weights, total, most = softmax_rows(scores)
            if wrong:
                total = total + np.float32(-len(slots) % 32) * np.exp(-cap - most)
            out[b, h] = (weights @ f32(x.v_buffer[slots, h // group]) / total).astype(out.dtype)
    return {"o": out}
