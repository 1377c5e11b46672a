"""A sliding window begins inside of a tile, which is left out whole."""

import numpy as np
from honest import f32, softmax_rows

SOURCE = "https://github.com/flashinfer-ai/flashinfer/pull/3682"
LINE = "extend_attention_fwd T=9 N=4 Nk=2 D=64 Dv=64 B=2 S=90 n=80 --attr sliding_window_size=27 --attr sm_scale=0.125"
NAMES = r"window.*(tile|whole|begin)|tile.*window"


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
                at = len(slots) + i - first
                begin = max(0, at - x.sliding_window_size)
                near = slice(min(-(-begin // 16) * 16, at) if wrong else begin, at + 1)
                weights, total, _ = softmax_rows(keys[near] @ f32(x.q_extend[i, h]) * np.float32(x.sm_scale))
                out[i, h] = (weights @ values[near] / total).astype(out.dtype)
    return {"o_extend": out}
