"""Short requests have splits without keys, and these are merged all the same: zeros with a log-sum-exp of 0."""

import numpy as np
from honest import decode_attention

SOURCE = "https://github.com/sgl-project/sglang/pull/2479"
LINE = "decode_attention_fwd B=4 N=4 Nk=2 S=120 n=140 D=64 --attr v_head_dim=64 --attr sm_scale=0.125"
NAMES = r"(splits?|tiles?) without keys|empty|terms? of a score of 0"


def edit(inputs):
    return {"kv_indptr": np.array([0, 3, 60, 65, 140], inputs["kv_indptr"].dtype)}


def kernel(x, wrong):
    if not wrong:
        return decode_attention(x)
    out, lengths = np.zeros((4, 4, 64), x.q.dtype), np.diff(x.kv_indptr)
    for b, n in enumerate(lengths):
        empty = max(0, 8 - -(-int(n) // -(-int(n) // 8)))
        out[b] = decode_attention(x, more=lambda most, sink: np.exp(-most) * empty)["o"][b]
    return {"o": out}
