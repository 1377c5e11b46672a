"""A chunk of 64 of the list is left out when its place in the list, not what it names, lies behind the query's own position."""

import numpy as np
from honest import BF16, f32, softmax_rows

SOURCE = "https://github.com/flagos-ai/FlagGems/pull/2184"
LINE = "flash_mla_sparse_fwd T=3 N=4 S=50 topk=128 --attr sm_scale=0.0721687836"
NAMES = r"indices.*(64|second half|first half|first|left out|dropped|cut)"


def kernel(x, wrong):
    tokens, heads = x.q.shape[:2]
    out = np.zeros((tokens, heads, 512), BF16)
    most, lse = np.full((tokens, heads), -np.inf, np.float32), np.full((tokens, heads), -np.inf, np.float32)
    for t in range(tokens):
        named = x.indices[t, 0]
        valid = (named >= 0) & (named < len(x.kv))
        named = named[valid & ((np.arange(128) // 64 * 64 <= 47 + t) | (not wrong))]  # queries are the last three
        keys = f32(x.kv[named, 0])
        for h in range(heads if len(keys) else 0):
            weights, total, highest = softmax_rows(keys @ f32(x.q[t, h]) * np.float32(x.sm_scale))
            out[t, h] = (weights @ keys[:, :512] / total).astype(BF16)
            most[t, h] = highest[0] * np.float32(1.4426950408889634)
            lse[t, h] = most[t, h] + np.log2(total[0])
    return {"out": out, "max_logits": most, "lse": lse}
