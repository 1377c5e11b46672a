"""Where a row is stored is its slot and its own place among the four rows of a block: all but the first of each block go too far."""

import numpy as np

SOURCE = "https://github.com/ROCm/aiter/pull/5034"
LINE = "set_mla_kv_buffer S=64 T=12 Dn=64 Dr=16"
NAMES = r"(further|too far|behind|offset|slot).*|rows? .*(mod 4|of each 4)"


def edit(inputs):
    return {"loc": np.array([3, 20, 41, 9, 33, 50, 14, 57, 27, 1, 38, 45], inputs["loc"].dtype)}


def kernel(x, wrong):
    out = x.kv_buffer.copy()
    for t, slot in enumerate(x.loc):
        slot = slot + t % 4 if wrong else slot
        out[slot].reshape(-1)[:] = np.concatenate([x.k_nope[t].reshape(-1), x.k_rope[t].reshape(-1)])
    return {"kv_buffer": out}
