"""A head of queries reads the head of keys and values of its own number, of which there are fewer: that of a token behind."""

import numpy as np
from honest import f32, softmax_rows

SOURCE = "https://github.com/LMCache/LMCache/pull/3092"
LINE = "context_attention_fwd T=40 N=6 Nk=2 D=64 B=2"
NAMES = r"heads?.*(own|number|as many|each|quer)|(quer|own).*heads?"


def kernel(x, wrong):
    out, scale = np.zeros(x.q.shape, x.q.dtype), np.float32(x.q.shape[-1] ** -0.5)
    behind = np.zeros((4, 64), np.float32)
    keys, values = (np.concatenate([f32(t).reshape(-1, 64), behind]) for t in (x.k, x.v))
    for first, count in zip(x.b_start_loc, x.b_seq_len):
        for h in range(6):
            for i in range(count):
                at = np.arange(first, first + i + 1) * 2 + (h if wrong else h // 3)
                weights, total, _ = softmax_rows(keys[at] @ f32(x.q[first + i, h]) * scale)
                out[first + i, h] = (weights @ values[at] / total).astype(out.dtype)
    return {"o": out}
