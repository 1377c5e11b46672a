"""One block of 64 queries is launched for each request, however many it has: the others are never written."""

import numpy as np
from honest import f32, softmax_rows

SOURCE = "https://github.com/Comfy-Org/comfy-kitchen/pull/111"
LINE = "context_attention_fwd T=190 N=2 Nk=1 D=64 B=2 --attr is_causal=false"
NAMES = r"64|first (block|tile)"


def edit(inputs):
    return {"b_start_loc": np.array([0, 80], np.int32), "b_seq_len": np.array([80, 110], np.int32)}


def kernel(x, wrong):
    out = np.zeros(x.q.shape, x.q.dtype)
    for first, count in zip(x.b_start_loc, x.b_seq_len):
        rows, keys = slice(first, first + (min(count, 64) if wrong else count)), slice(first, first + count)
        for h in range(2):
            weights, total, _ = softmax_rows(f32(x.q[rows, h]) @ f32(x.k[keys, 0]).T * np.float32(0.125))
            out[rows, h] = (weights @ f32(x.v[keys, 0]) / total).astype(out.dtype)
    return {"o": out}
