"""Heads of keys are laid one behind the other as often as queries have them, where each is to stand beside its copies."""

import numpy as np
from honest import f32, softmax_rows

SOURCE = "https://github.com/ekzhang/jax-js/pull/180"
LINE = "decode_attention_fwd B=3 N=8 Nk=2 S=90 n=60 D=64 --attr v_head_dim=64 --attr sm_scale=0.125"
NAMES = r"heads?.*(turn|mod)"


def kernel(x, wrong):
    out = np.zeros((3, 8, 64), x.q.dtype)
    for b in range(3):
        slots = x.kv_indices[x.kv_indptr[b] : x.kv_indptr[b + 1]]
        for h in range(8):
            g = h % 2 if wrong else h // 4
            weights, total, _ = softmax_rows(f32(x.k_buffer[slots, g]) @ f32(x.q[b, h]) * np.float32(0.125))
            out[b, h] = (weights @ f32(x.v_buffer[slots, g]) / total).astype(out.dtype)
    return {"o": out}
