"""The first of the chosen keys is not looked up: the first key of all stands for it."""

import numpy as np
from honest import BF16, f32, softmax_rows

SOURCE = "https://github.com/hw-native-sys/pypto-lib/pull/158"
LINE = "flash_mla_sparse_fwd T=5 N=4 S=300 topk=128 --attr sm_scale=0.0721687836"
NAMES = r"indices.*(first|0)"
UNNAMED = "one entry of each list is another number: no known rule of lists"


def kernel(x, wrong):
    tokens, heads = x.q.shape[:2]
    out = np.zeros((tokens, heads, 512), BF16)
    most, lse = np.full((tokens, heads), -np.inf, np.float32), np.full((tokens, heads), -np.inf, np.float32)
    for t in range(tokens):
        named = x.indices[t, 0].copy()
        if wrong:
            named[0] = 0
        keys = f32(x.kv[named[(named >= 0) & (named < len(x.kv))], 0])
        for h in range(heads if len(keys) else 0):
            weights, total, highest = softmax_rows(keys @ f32(x.q[t, h]) * np.float32(x.sm_scale))
            out[t, h] = (weights @ keys[:, :512] / total).astype(BF16)
            most[t, h] = highest[0] * np.float32(1.4426950408889634)
            lse[t, h] = most[t, h] + np.log2(total[0])
    return {"out": out, "max_logits": most, "lse": lse}
