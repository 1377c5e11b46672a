"""Over the prefix the window is not looked at: only among the new tokens."""

import numpy as np
from honest import F32, extend_attention, f32, softmax_rows

SOURCE = "https://github.com/vllm-project/vllm/pull/4405"
LINE = "extend_attention_fwd T=24 N=4 Nk=2 D=64 Dv=64 B=2 S=120 n=80 --attr sliding_window_size=9 --attr sm_scale=0.125"
NAMES = r"sliding_window|window"


def kernel(x, wrong):
    if not wrong:
        return extend_attention(x, 9)
    out = np.zeros((24, 4, 64), x.q_extend.dtype)
    for b in range(2):
        first, end = x.qo_indptr[b], x.qo_indptr[b + 1]
        slots = x.kv_indices[x.kv_indptr[b] : x.kv_indptr[b + 1]]
        for h in range(4):
            for i in range(first, end):
                near = slice(max(first, i - 9), i + 1)
                keys = np.concatenate([f32(x.k_buffer[slots, h // 2]), f32(x.k_extend[near, h // 2])])
                values = np.concatenate([f32(x.v_buffer[slots, h // 2]), f32(x.v_extend[near, h // 2])])
                weights, total, _ = softmax_rows(keys @ f32(x.q_extend[i, h]) * F32(0.125))
                out[i, h] = (weights @ values / total).astype(out.dtype)
    return {"o_extend": out}
