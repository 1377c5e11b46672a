"""A block's sums are not set back to zero when it takes its next row: rows keep what the rows before them left."""

import numpy as np
from honest import f32

SOURCE = "https://github.com/flashinfer-ai/flashinfer/pull/5029"
LINE = "moe_sum T=12 topk=8 D=128"
NAMES = r"(row|token).*(before|earlier|stale|4)|not (reset|set back)|stale|left over|accumulat"


def kernel(x, wrong):
    blocks = 4
    sums = f32(x.input_tensor).sum(1, dtype=np.float32)
    if wrong:
        for row in range(blocks, len(sums)):
            sums[row] += sums[row - blocks]
    return {"output_tensor": sums.astype(x.input_tensor.dtype)}
