"""A row of both parts is taken for the first part alone: the second is written behind it, upon the next slot's beginning."""

import numpy as np

SOURCE = "https://github.com/sgl-project/sglang/pull/38666"
LINE = "set_mla_kv_buffer S=64 T=9 Dn=64 Dr=16"
NAMES = r"k_rope|columns 0\.\.15|next slot|behind"


def edit(inputs):
    return {"loc": np.array([3, 20, 41, 9, 33, 50, 14, 57, 27], inputs["loc"].dtype)}


def kernel(x, wrong):
    out = x.kv_buffer.copy()
    for t, slot in enumerate(x.loc):
        out[slot].reshape(-1)[:] = np.concatenate([x.k_nope[t].reshape(-1), x.k_rope[t].reshape(-1)])
    for t, slot in enumerate(x.loc) if wrong else ():
        out[slot + 1].reshape(-1)[:16] = x.k_rope[t].reshape(-1)
    return {"kv_buffer": out}
