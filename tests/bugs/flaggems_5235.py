"""A tile of four rows begins in the right place and steps by a whole token's heads: rows behind its first lie too far, and their own places stay empty."""

import numpy as np
from honest import decode_attention

SOURCE = "https://github.com/flagos-ai/FlagGems/issues/5235"
LINE = "decode_attention_fwd B=6 N=8 Nk=2 S=90 n=60 D=64 --attr v_head_dim=64 --attr sm_scale=0.125"
NAMES = r"stride|apart|step|stored"


def kernel(x, wrong):
    o = decode_attention(x)["o"]
    if wrong:
        rows, stored = o.reshape(-1, o.shape[-1]), np.zeros((o.shape[0] * o.shape[1], o.shape[-1]), o.dtype)
        for row in range(len(rows)):
            at = row // 4 * 4 + row % 4 * o.shape[1]
            if at < len(stored):
                stored[at] = rows[row]
        o = stored.reshape(o.shape)
    return {"o": o}
