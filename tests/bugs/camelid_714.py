"""Weighted values are shared out to as many groups of threads as a prompt has 64 keys, and only the first group's are added."""

import numpy as np
from honest import f32, softmax_rows

SOURCE = "https://github.com/timtoole02/Camelid/pull/714"
LINE = "context_attention_fwd T=190 N=2 Nk=1 D=64 B=2"
NAMES = r"(keys?|values?).*(64|every|first|beyond|left out|of each)|weighted"


def kernel(x, wrong):
    heads, scale = x.q.shape[1], np.float32(x.q.shape[-1] ** -0.5)
    out = np.zeros(x.q.shape, x.q.dtype)
    for first, count in zip(x.b_start_loc, x.b_seq_len):
        for h in range(heads):
            keys = f32(x.k[first : first + count, h // (heads // x.k.shape[1])])
            values = f32(x.v[first : first + count, h // (heads // x.k.shape[1])])
            for i in range(count):
                weights, total, _ = softmax_rows(keys[: i + 1] @ f32(x.q[first + i, h]) * scale)
                if wrong:
                    weights = np.where(np.arange(i + 1) % -(-(i + 1) // 64) == 0, weights, np.float32(0))
                out[first + i, h] = (weights @ values[: i + 1] / total).astype(out.dtype)
    return {"o": out}
