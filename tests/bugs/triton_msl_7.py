"""Where the tiles divide a sequence exactly there is no mask at all: its queries see the keys after them."""

import numpy as np
from honest import f32, softmax_rows

SOURCE = "https://github.com/bledden/triton-msl/pull/7"
LINE = "context_attention_fwd T=190 N=2 Nk=1 D=64 B=3"
NAMES = r"causal"


def edit(inputs):
    return {"b_start_loc": np.array([0, 48, 112], np.int32), "b_seq_len": np.array([48, 64, 78], np.int32)}


def kernel(x, wrong):
    out = np.zeros(x.q.shape, x.q.dtype)
    for first, count in zip(x.b_start_loc, x.b_seq_len):
        for h in range(2):
            keys, values = (f32(t[first : first + count, 0]) for t in (x.k, x.v))
            for i in range(count):
                end = count if wrong and count % 32 == 0 else i + 1
                weights, total, _ = softmax_rows(keys[:end] @ f32(x.q[first + i, h]) * np.float32(0.125))
                out[first + i, h] = (weights @ values[:end] / total).astype(out.dtype)
    return {"o": out}
