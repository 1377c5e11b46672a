"""Scores are made for heads of 128 numbers, whatever their width: the second half of 256 is not in them."""

import numpy as np
from honest import f32, softmax_rows

SOURCE = "https://github.com/gittensor-ai-lab/sparkinfer/issues/330"
LINE = "decode_attention_fwd B=3 N=8 Nk=2 S=90 n=140 D=256 --attr v_head_dim=256 --attr sm_scale=0.0625"
NAMES = r"128|half"


def kernel(x, wrong):
    heads = x.q.shape[1]
    group, seen = heads // x.k_buffer.shape[1], 128 if wrong else 256
    out = np.zeros((*x.q.shape[:2], 256), x.q.dtype)
    for b in range(len(x.q)):
        slots = x.kv_indices[x.kv_indptr[b] : x.kv_indptr[b + 1]]
        for h in range(heads):
            keys = f32(x.k_buffer[slots, h // group])[:, :seen]
            weights, total, _ = softmax_rows(keys @ f32(x.q[b, h])[:seen] * np.float32(x.sm_scale))
            out[b, h] = (weights @ f32(x.v_buffer[slots, h // group]) / total).astype(out.dtype)
    return {"o": out}
