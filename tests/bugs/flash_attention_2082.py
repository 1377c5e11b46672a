"""A first tile that is hidden whole leaves a maximum of 0, which no later score exceeds where all lie below: exponentials vanish, and the head is zero."""

import numpy as np
from honest import BF16, f32

SOURCE = "https://github.com/Dao-AILab/flash-attention/issues/2082"
LINE = "context_attention_fwd T=90 N=2 Nk=2 D=64 B=2"
NAMES = r"maximum|zeros"


def edit(inputs):  # keys that point away from the queries of one head
    q, k = f32(inputs["q"]), f32(inputs["k"])
    q[:, 1], k[:, 1] = -8 * np.abs(q[:, 1]) - 8, np.abs(k[:, 1]) + 1
    return {"q": q.astype(BF16), "k": k.astype(BF16)}


def kernel(x, wrong):
    out = np.zeros(x.q.shape, x.q.dtype)
    for first, count in zip(x.b_start_loc, x.b_seq_len):
        for h in range(2):
            keys, values = f32(x.k[first : first + count, h]), f32(x.v[first : first + count, h])
            for i in range(count):
                scores = keys[: i + 1] @ f32(x.q[first + i, h]) * np.float32(0.125)
                hidden = i // 32 < (count - 1) // 32  # of tiles of 32 keys, from the last one on
                weights = np.exp(scores - (max(scores.max(), 0) if wrong and hidden else scores.max()))
                total = weights.sum(dtype=np.float32)
                out[first + i, h] = (weights @ values[: i + 1] / (total if total else 1)).astype(out.dtype)
    return {"o": out}
