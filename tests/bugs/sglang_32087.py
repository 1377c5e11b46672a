"""Requests longer than the window lose the oldest key of their list, which is inside of it."""

from honest import f32, softmax_rows
import numpy as np

SOURCE = "https://github.com/sgl-project/sglang/pull/32087"
LINE = "decode_attention_fwd B=4 N=4 Nk=2 S=90 n=120 D=64 --attr v_head_dim=64 --attr sm_scale=0.125"
NAMES = r"(first|oldest) key"


def edit(inputs):
    return {"kv_indptr": np.array([0, 10, 43, 60, 120], np.int32)}


def kernel(x, wrong):
    heads = x.q.shape[1]
    group = heads // x.k_buffer.shape[1]
    out = np.zeros(x.q.shape, x.q.dtype)
    for b in range(len(x.q)):
        slots = x.kv_indices[x.kv_indptr[b] : x.kv_indptr[b + 1]]
        if wrong and len(slots) > 32:
            slots = slots[1:]
        for h in range(heads):
            weights, total, _ = softmax_rows(f32(x.k_buffer[slots, h // group]) @ f32(x.q[b, h]) * np.float32(x.sm_scale))
            out[b, h] = (weights @ f32(x.v_buffer[slots, h // group]) / total).astype(out.dtype)
    return {"o": out}
