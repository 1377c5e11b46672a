"""Slots of 64 bits are read as if they had 32: every second one is the upper half of another, 0."""

import numpy as np

SOURCE = "https://github.com/vllm-project/vllm-ascend/pull/16775"
LINE = "set_mla_kv_buffer S=64 T=8 Dn=64 Dr=16"
NAMES = r"loc.*(32 bits|i32|int32|half)"


def kernel(x, wrong):
    out = x.kv_buffer.copy()
    slots = np.ascontiguousarray(x.loc).view(np.int32)[: len(x.loc)] if wrong else x.loc
    for t, slot in enumerate(slots):
        out[slot].reshape(-1)[:] = np.concatenate([x.k_nope[t].reshape(-1), x.k_rope[t].reshape(-1)])
    return {"kv_buffer": out}
