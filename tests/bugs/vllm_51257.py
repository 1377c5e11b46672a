"""A window of causal requests has its width on both sides: a query sees as many keys ahead as behind."""

import numpy as np
from honest import f32, softmax_rows

SOURCE = "https://github.com/vllm-project/vllm/pull/51257"
LINE = "extend_attention_fwd T=40 N=4 Nk=2 D=64 Dv=64 B=2 S=60 n=30 --attr sliding_window_size=7 --attr sm_scale=0.125"
NAMES = r"both sides|ahead|future|causal"


def kernel(x, wrong):
    out = np.zeros((*x.q_extend.shape[:2], x.v_extend.shape[-1]), x.q_extend.dtype)
    for b in range(2):
        first, end = x.qo_indptr[b], x.qo_indptr[b + 1]
        slots = x.kv_indices[x.kv_indptr[b] : x.kv_indptr[b + 1]]
        for h in range(4):
            keys = np.concatenate([f32(x.k_buffer[slots, h // 2]), f32(x.k_extend[first:end, h // 2])])
            values = np.concatenate([f32(x.v_buffer[slots, h // 2]), f32(x.v_extend[first:end, h // 2])])
            for i in range(first, end):
                at, k = len(slots) + i - first, np.arange(len(keys))
                seen = (k >= at - 7) & (k <= (at + 7 if wrong else at))
                weights, total, _ = softmax_rows(keys[seen] @ f32(x.q_extend[i, h]) * np.float32(0.125))
                out[i, h] = (weights @ values[seen] / total).astype(out.dtype)
    return {"o_extend": out}
