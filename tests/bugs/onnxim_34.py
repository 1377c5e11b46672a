"""A head's keys are found by dividing its number by the number of groups, not by the heads of a group."""

import numpy as np
from honest import f32, softmax_rows

SOURCE = "https://github.com/PSAL-POSTECH/ONNXim/pull/34"
LINE = "decode_attention_fwd B=3 N=8 Nk=4 S=60 n=90 D=64 --attr v_head_dim=64 --attr sm_scale=0.125"
NAMES = r"head"


def kernel(x, wrong):
    heads, groups = x.q.shape[1], x.k_buffer.shape[1]
    out = np.zeros(x.q.shape, x.q.dtype)
    for b in range(len(x.q)):
        slots = x.kv_indices[x.kv_indptr[b] : x.kv_indptr[b + 1]]
        for h in range(heads):
            g = h // groups if wrong else h // (heads // groups)
            weights, total, _ = softmax_rows(f32(x.k_buffer[slots, g]) @ f32(x.q[b, h]) * np.float32(x.sm_scale))
            out[b, h] = (weights @ f32(x.v_buffer[slots, g]) / total).astype(out.dtype)
    return {"o": out}
