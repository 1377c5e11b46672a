"""Scores are capped before their scale, and the scale stands outside of the tanh."""

import numpy as np
from honest import f32, softmax_rows

SOURCE = "https://github.com/huggingface/trl/pull/5691"
LINE = "decode_attention_fwd B=4 N=4 Nk=2 S=60 n=90 D=64 --attr v_head_dim=64 --attr sm_scale=0.25 --attr logit_cap=4"
NAMES = r"cap.*(before|scale)|(scale|scaled).*(behind|after|outside).*(cap|tanh)"
UNNAMED = "told as another cap: a scale in another place is no number of the call"


def kernel(x, wrong):
    out, cap, scale = np.zeros(x.q.shape, x.q.dtype), np.float32(x.logit_cap), np.float32(x.sm_scale)
    for b in range(len(x.q)):
        slots = x.kv_indices[x.kv_indptr[b] : x.kv_indptr[b + 1]]
        for h in range(4):
            raw = f32(x.k_buffer[slots, h // 2]) @ f32(x.q[b, h])
            scores = cap * np.tanh(raw / cap) * scale if wrong else cap * np.tanh(raw * scale / cap)
            weights, total, _ = softmax_rows(scores)
            out[b, h] = (weights @ f32(x.v_buffer[slots, h // 2]) / total).astype(out.dtype)
    return {"o": out}
