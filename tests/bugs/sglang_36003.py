"""Rows of padding, whose slot is 0, are stored there, though that slot has to stay finite."""

import numpy as np

SOURCE = "https://github.com/sgl-project/sglang/pull/36003"
LINE = "set_mla_kv_buffer S=4 T=4 Dn=40 Dr=8 --attr slot_zero=reserved"
NAMES = r"slot_zero=written"


def kernel(x, wrong):
    out = x.kv_buffer.copy()
    for t, slot in enumerate(x.loc):
        if slot != 0 or wrong:
            out[slot].reshape(-1)[:] = np.concatenate([x.k_nope[t].reshape(-1), x.k_rope[t].reshape(-1)])
    return {"kv_buffer": out}
