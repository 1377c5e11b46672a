"""The cap comes after the mask: hidden keys have the score of minus the cap, and count."""

import numpy as np
from honest import f32, softmax_rows

SOURCE = "https://github.com/emmtrix/emx-onnx-cgen/pull/731"
LINE = "extend_attention_fwd T=9 N=4 Nk=2 D=64 Dv=64 B=2 S=60 n=50 --attr sm_scale=0.25 --attr logit_cap=3"
NAMES = r"(cap|tanh).*(mask|hidden|after)|(hidden|masked|keys after).*(cap|count|score|weight)"


def kernel(x, wrong):
    out = np.zeros((*x.q_extend.shape[:2], 64), x.q_extend.dtype)
    for b in range(len(x.qo_indptr) - 1):
        first, end = x.qo_indptr[b], x.qo_indptr[b + 1]
        slots = x.kv_indices[x.kv_indptr[b] : x.kv_indptr[b + 1]]
        for h in range(4):
            keys = np.concatenate([f32(x.k_buffer[slots, h // 2]), f32(x.k_extend[first:end, h // 2])])
            values = np.concatenate([f32(x.v_buffer[slots, h // 2]), f32(x.v_extend[first:end, h // 2])])
            for i in range(first, end):
                scores = keys @ f32(x.q_extend[i, h]) * np.float32(x.sm_scale)
                hidden = np.arange(len(keys)) > len(slots) + i - first
                scores = np.float32(3) * np.tanh(scores / np.float32(3))
                scores[hidden] = -3 if wrong else -np.inf
                weights, total, _ = softmax_rows(scores)
                out[i, h] = (weights @ values / total).astype(out.dtype)
    return {"o_extend": out}
