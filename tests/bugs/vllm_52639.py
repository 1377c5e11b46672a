"""Parts are added by the choices of another rank's tokens, those that the dispatch left in their place."""

import numpy as np
from honest import BF16, f32

SOURCE = "https://github.com/vllm-project/vllm/pull/52639"
LINE = "deepep_low_latency_combine E=8 S=16 H=256 R=2 T=5 topk=3"
NAMES = r"topk_idx"

UNNAMED = "which choices stood there is the dispatch's own"


def kernel(x, wrong):
    ranks, tokens, topk = x.topk_idx.shape
    total = np.zeros((ranks, tokens, x.x.shape[-1]), np.float32)
    for r in range(ranks):
        for t in range(tokens):
            for k in range(topk):
                e, asked = x.topk_idx[r, t, k], x.topk_idx[(r + 1) % ranks if wrong else r, t, k]
                if e < 0 or asked < 0:
                    continue
                count, begin = int(x.layout_range[e, r]) & 0xFFFFFFFF, int(x.layout_range[e, r]) >> 32
                row = begin + int(np.flatnonzero(x.src_info[e, begin : begin + count] == t)[0])
                total[r, t] += f32(x.x[asked, row]) * x.topk_weights[r, t, k]
    return {"combined_x": total.astype(BF16)}
