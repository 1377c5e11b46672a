"""A chunk of a prompt attends to itself alone: what came before it in the cache is not read."""

import numpy as np
from honest import f32, softmax_rows

SOURCE = "https://github.com/kekzl/imp/pull/117"
LINE = "extend_attention_fwd T=20 N=4 Nk=2 D=64 Dv=64 B=2 S=90 n=50 --attr sm_scale=0.125"
NAMES = r"prefix|pool.*(not|no) |k_buffer.*(ignored|zero)"


def kernel(x, wrong):
    heads = x.q_extend.shape[1]
    out = np.zeros(x.q_extend.shape, x.q_extend.dtype)
    for b in range(len(x.qo_indptr) - 1):
        first, end = x.qo_indptr[b], x.qo_indptr[b + 1]
        slots = x.kv_indices[x.kv_indptr[b] : x.kv_indptr[b + 1]]
        slots = slots[:0] if wrong else slots
        for h in range(heads):
            g = h // (heads // x.k_extend.shape[1])
            keys = np.concatenate([f32(x.k_buffer[slots, g]), f32(x.k_extend[first:end, g])])
            values = np.concatenate([f32(x.v_buffer[slots, g]), f32(x.v_extend[first:end, g])])
            for i in range(first, end):
                seen = len(slots) + i - first + 1
                weights, total, _ = softmax_rows(keys[:seen] @ f32(x.q_extend[i, h]) * np.float32(x.sm_scale))
                out[i, h] = (weights @ values[:seen] / total).astype(out.dtype)
    return {"o_extend": out}
