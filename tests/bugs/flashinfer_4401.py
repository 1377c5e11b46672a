"""Hidden keys get a score of -50000, a number like others: where the scores themselves lie below it the hidden keys win."""

import numpy as np
from honest import f32, softmax_rows

SOURCE = "https://github.com/flashinfer-ai/flashinfer/pull/4401"
LINE = "extend_attention_fwd T=9 N=4 Nk=2 D=64 Dv=64 B=2 S=60 n=50 --attr sm_scale=12000"
NAMES = r"hidden|masked|finite"


def edit(inputs):  # every score far below 0
    signs = {name: np.abs(np.asarray(inputs[name]).astype(np.float32)) for name in ("q_extend", "k_extend", "k_buffer")}
    signs["q_extend"] = -signs["q_extend"]
    return {name: values.astype(np.asarray(inputs[name]).dtype) for name, values in signs.items()}


def kernel(x, wrong):
    heads, group = x.q_extend.shape[1], x.q_extend.shape[1] // x.k_extend.shape[1]
    out = np.zeros((*x.q_extend.shape[:2], x.v_extend.shape[-1]), x.q_extend.dtype)
    for b in range(len(x.qo_indptr) - 1):
        first, end = x.qo_indptr[b], x.qo_indptr[b + 1]
        slots = x.kv_indices[x.kv_indptr[b] : x.kv_indptr[b + 1]]
        for h in range(heads):
            keys = np.concatenate([f32(x.k_buffer[slots, h // group]), f32(x.k_extend[first:end, h // group])])
            values = np.concatenate([f32(x.v_buffer[slots, h // group]), f32(x.v_extend[first:end, h // group])])
            for i in range(first, end):
                scores = keys @ f32(x.q_extend[i, h]) * np.float32(x.sm_scale)
                scores[len(slots) + i - first + 1 :] = -5e4 if wrong else -np.inf
                weights, total, _ = softmax_rows(scores)
                out[i, h] = (weights @ values / total).astype(out.dtype)
    return {"o_extend": out}
