"""Numbers that stand for no key become 0 where they should stay -1: the first slot's key counts for each."""

import numpy as np
from honest import BF16, f32, softmax_rows

SOURCE = "https://github.com/vllm-project/vllm/pull/45324"
LINE = "flash_mla_sparse_fwd T=3 N=4 S=70 topk=128 --attr sm_scale=0.0721687836"
NAMES = r"(no row|absent|-1|none).*(0|first|nearest)"


def kernel(x, wrong):
    tokens, heads = x.q.shape[:2]
    out = np.zeros((tokens, heads, 512), BF16)
    most, lse = np.full((tokens, heads), -np.inf, np.float32), np.full((tokens, heads), -np.inf, np.float32)
    for t in range(tokens):
        named = x.indices[t, 0]
        absent = (named < 0) | (named >= len(x.kv))
        named = np.where(absent, 0, named) if wrong else named[~absent]
        keys = f32(x.kv[named, 0])
        if len(keys) == 0:
            continue
        for h in range(heads):
            weights, total, highest = softmax_rows(keys @ f32(x.q[t, h]) * np.float32(x.sm_scale))
            out[t, h] = (weights @ keys[:, :512] / total).astype(BF16)
            most[t, h] = highest[0] * np.float32(1.4426950408889634)
            lse[t, h] = most[t, h] + np.log2(total[0])
    return {"out": out, "max_logits": most, "lse": lse}
