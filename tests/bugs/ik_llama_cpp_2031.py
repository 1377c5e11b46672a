"""Blocks of keys are as long as a key is wide, blocks of values as a value is: behind the first block weights meet values of other tokens."""

import numpy as np
from honest import f32, softmax_rows

SOURCE = "https://github.com/ikawrakow/ik_llama.cpp/pull/2031"
LINE = "decode_attention_fwd B=2 N=4 Nk=2 S=600 n=700 D=192 --attr v_head_dim=128 --attr sm_scale=0.0721687836"
NAMES = r"v_buffer|values?.*(128|192|block|other)"


def kernel(x, wrong):
    heads, wide, narrow = x.q.shape[1], x.q.shape[2], x.v_head_dim
    group = heads // x.k_buffer.shape[1]
    out = np.zeros((*x.q.shape[:2], narrow), x.q.dtype)
    for b in range(len(x.q)):
        slots = x.kv_indices[x.kv_indptr[b] : x.kv_indptr[b + 1]]
        at = np.arange(len(slots))
        block, place = at // wide, at % wide
        for h in range(heads):
            weights, total, _ = softmax_rows(f32(x.k_buffer[slots, h // group]) @ f32(x.q[b, h]) * np.float32(x.sm_scale))
            if wrong:
                seen = place < narrow
                values = f32(x.v_buffer[slots[(block * narrow + place)[seen]], h // group])
                out[b, h] = (weights[seen] @ values / total).astype(out.dtype)
            else:
                out[b, h] = (weights @ f32(x.v_buffer[slots, h // group]) / total).astype(out.dtype)
    return {"o": out}
