"""The cap on scores is left out on the path that keeps them in fp32."""

import numpy as np
from honest import f32, softmax_rows

SOURCE = "https://github.com/kekzl/imp/pull/688"
LINE = "decode_attention_fwd B=3 N=4 Nk=2 S=60 n=90 D=64 --attr v_head_dim=64 --attr sm_scale=1 --attr logit_cap=5"
NAMES = r"logit_cap"


def scores(x, cap):
    heads = x.q.shape[1]
    out = np.zeros(x.q.shape, x.q.dtype)
    for b in range(len(x.q)):
        slots = x.kv_indices[x.kv_indptr[b] : x.kv_indptr[b + 1]]
        for h in range(heads):
            g = h // (heads // x.k_buffer.shape[1])
            weights, total, _ = softmax_rows(cap(f32(x.k_buffer[slots, g]) @ f32(x.q[b, h]) * np.float32(x.sm_scale)))
            out[b, h] = (weights @ f32(x.v_buffer[slots, g]) / total).astype(out.dtype)
    return {"o": out}


def kernel(x, wrong):
    return scores(x, lambda s: s if wrong else np.float32(x.logit_cap) * np.tanh(s / np.float32(x.logit_cap)))
