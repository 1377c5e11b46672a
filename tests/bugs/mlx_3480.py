"""A head of keys that several heads of queries share has a distance of 0, which one path does not keep: query head h reads what would be the h-th head of keys."""

import numpy as np
from honest import f32, softmax_rows

SOURCE = "https://github.com/ml-explore/mlx/issues/3480"
LINE = "decode_attention_fwd B=3 N=8 Nk=4 S=90 n=60 D=64 --attr v_head_dim=64 --attr sm_scale=0.125"
NAMES = r"heads?.*(turn|mod|own|share|key)"


def kernel(x, wrong):
    out = np.zeros((3, 8, 64), x.q.dtype)
    for b in range(3):
        slots = x.kv_indices[x.kv_indptr[b] : x.kv_indptr[b + 1]]
        for h in range(8):
            keys = f32(x.k_buffer[slots, h % 4 if wrong else h // 2])
            weights, total, _ = softmax_rows(keys @ f32(x.q[b, h]) * np.float32(0.125))
            out[b, h] = (weights @ f32(x.v_buffer[slots, h // 2]) / total).astype(out.dtype)
    return {"o": out}
