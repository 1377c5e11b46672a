"""Heads are cut into tiles of 16 without regard to groups of 24: a tile's key head is that of its first query head."""

import numpy as np
from honest import F32, f32, softmax_rows

SOURCE = "https://github.com/FlashML-org/FreeToken/pull/177"
LINE = "decode_attention_fwd B=3 N=48 Nk=2 S=60 n=60 D=64 --attr v_head_dim=64 --attr sm_scale=0.125"
NAMES = r"heads?.*(16|tile|24|31)|k_buffer.*head|(another|next|previous|other) head"


def kernel(x, wrong):
    out = np.zeros((*x.q.shape[:2], 64), x.q.dtype)
    for b in range(len(x.q)):
        slots = x.kv_indices[x.kv_indptr[b] : x.kv_indptr[b + 1]]
        if len(slots) == 0:
            continue
        for h in range(48):
            of = (h // 16 * 16 if wrong else h) // 24
            weights, total, _ = softmax_rows(f32(x.k_buffer[slots, of]) @ f32(x.q[b, h]) * F32(x.sm_scale))
            out[b, h] = (weights @ f32(x.v_buffer[slots, of]) / total).astype(out.dtype)
    return {"o": out}
