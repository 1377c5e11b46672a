"""Lanes behind the last key have a score of -inf, which the soft cap makes -cap: they are counted."""

import numpy as np
from honest import F32, f32

SOURCE = "https://github.com/unslothai/unsloth/pull/10616"
LINE = "decode_attention_fwd B=4 N=4 Nk=2 S=100 n=60 D=64 --attr v_head_dim=64 --attr sm_scale=0.125 --attr logit_cap=3"
NAMES = r"cap|tile|fill|counts|count"


def kernel(x, wrong):
    out = np.zeros((4, 4, 64), x.q.dtype)
    for b in range(4):
        slots = x.kv_indices[x.kv_indptr[b] : x.kv_indptr[b + 1]]
        for h in range(4):
            scores = F32(3) * np.tanh(f32(x.k_buffer[slots, h // 2]) @ f32(x.q[b, h]) * F32(0.125) / F32(3))
            if len(slots) == 0:
                continue
            weights = np.exp(scores - scores.max())
            total = weights.sum(dtype=F32)
            if wrong:
                total = total + F32(-len(slots) % 32) * np.exp(F32(-3) - scores.max())
            out[b, h] = (weights @ f32(x.v_buffer[slots, h // 2]) / total).astype(out.dtype)
    return {"o": out}
