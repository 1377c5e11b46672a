"""The list of slots begins with the first token that is stored, and is asked as if it began with the request's: tokens go to the slots of tokens three behind."""

import numpy as np

SOURCE = "https://github.com/LMCache/LMCache/issues/4921"
LINE = "set_mla_kv_buffer S=64 T=20 Dn=64 Dr=16"
NAMES = r"loc.*(3|behind|shift|further|later|next)"


def kernel(x, wrong):
    out = x.kv_buffer.copy()
    for t in range(len(x.loc) - (3 if wrong else 0)):
        slot = x.loc[t + 3 if wrong else t]
        out[slot].reshape(-1)[:] = np.concatenate([x.k_nope[t].reshape(-1), x.k_rope[t].reshape(-1)])
    return {"kv_buffer": out}
