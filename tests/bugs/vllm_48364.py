"""A running maximum of -inf less itself: where the first 16 numbers of a list name no row all that follows is NaN."""

import numpy as np
from honest import BF16, f32, softmax_rows

SOURCE = "https://github.com/vllm-project/vllm/issues/48364"
LINE = "flash_mla_sparse_fwd T=5 N=4 S=70 topk=128 --attr sm_scale=0.0721687836"
NAMES = r"NaN"


def edit(inputs):
    indices = inputs["indices"].copy()
    indices[1, 0, :16] = -1
    indices[3, 0, :20] = -1
    return {"indices": indices}


def kernel(x, wrong):
    tokens, heads = x.q.shape[:2]
    out = np.zeros((tokens, heads, 512), BF16)
    most, lse = np.full((tokens, heads), -np.inf, np.float32), np.full((tokens, heads), -np.inf, np.float32)
    for t in range(tokens):
        named = x.indices[t, 0]
        valid = (named >= 0) & (named < len(x.kv))
        named, poisoned = named[valid], wrong and not valid[:16].any()
        keys = f32(x.kv[named, 0])
        for h in range(heads if len(keys) else 0):
            weights, total, highest = softmax_rows(keys @ f32(x.q[t, h]) * np.float32(x.sm_scale))
            out[t, h] = (weights @ keys[:, :512] / total).astype(BF16)
            most[t, h] = highest[0] * np.float32(1.4426950408889634)
            lse[t, h] = most[t, h] + np.log2(total[0])
        if poisoned:
            out[t], lse[t] = np.nan, np.nan
    return {"out": out, "max_logits": most, "lse": lse}
