"""A block of 128 columns that holds the border between the two parts is taken for one of the second: it reads before that part's row."""

import numpy as np

SOURCE = "https://github.com/sgl-project/sglang/pull/15522"
LINE = "set_mla_kv_buffer S=64 T=7 Dn=528 Dr=64"
NAMES = r"columns 512\.\.527|border|before the row"


def kernel(x, wrong):
    out = x.kv_buffer.copy()
    nope, rope = x.k_nope.reshape(len(x.loc), -1), np.ascontiguousarray(x.k_rope.reshape(len(x.loc), -1))
    for t, slot in enumerate(x.loc):
        out[slot].reshape(-1)[:] = np.concatenate([nope[t], rope[t]])
        if wrong:
            out[slot].reshape(-1)[512:528] = rope[t - 1, -16:] if t else 0
    return {"kv_buffer": out}
