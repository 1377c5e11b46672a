"""The cap of the logits is taken and never used."""

import numpy as np
from honest import decode_attention, f32, softmax_rows

SOURCE = "https://github.com/sgl-project/sgl-kernel-xpu/pull/491"
LINE = "decode_attention_fwd B=3 N=4 Nk=2 S=90 n=60 D=64 --attr v_head_dim=64 --attr sm_scale=0.5 --attr logit_cap=5"
NAMES = r"logit_cap"


def kernel(x, wrong):
    if wrong:
        return decode_attention(x)
    out = np.zeros((3, 4, 64), x.q.dtype)
    for b in range(3):
        slots = x.kv_indices[x.kv_indptr[b] : x.kv_indptr[b + 1]]
        for h in range(4):
            scores = f32(x.k_buffer[slots, h // 2]) @ f32(x.q[b, h]) * np.float32(x.sm_scale)
            weights, total, _ = softmax_rows(np.float32(5) * np.tanh(scores / np.float32(5)))
            out[b, h] = (weights @ f32(x.v_buffer[slots, h // 2]) / total).astype(out.dtype)
    return {"o": out}
