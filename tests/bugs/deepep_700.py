"""One token's row takes parts of one expert's row from before it was written."""

import numpy as np
from honest import BF16, f32

SOURCE = "https://github.com/deepseek-ai/DeepEP/issues/700"
LINE = "deepep_low_latency_combine E=8 S=16 H=256 R=2 T=5 topk=3"
NAMES = r"one row: 1, columns 32\.\.95"


def kernel(x, wrong):
    ranks, tokens, _ = x.topk_idx.shape
    total = np.zeros((ranks, tokens, x.x.shape[-1]), np.float32)
    for r in range(ranks):
        for t in range(tokens):
            for k, e in enumerate(x.topk_idx[r, t]):
                if e < 0:
                    continue
                count, begin = int(x.layout_range[e, r]) & 0xFFFFFFFF, int(x.layout_range[e, r]) >> 32
                row = begin + int(np.flatnonzero(x.src_info[e, begin : begin + count] == t)[0])
                values = f32(x.x[e, row]).copy()
                if wrong and (r, t, k) == (0, 1, 1):
                    values[32:96] = f32(x.x[e, (row + 1) % x.x.shape[1], 32:96])
                total[r, t] += values * x.topk_weights[r, t, k]
    return {"combined_x": total.astype(BF16)}
