"""Scales of activations that lie row by row are read as if they lay by columns: their shapes are alike."""

import numpy as np
from honest import BF16, by_blocks

SOURCE = "https://github.com/vllm-project/vllm/pull/56433"
LINE = "fp8_blockwise_scaled_grouped_mm M=20 N=128 K=512 E=2"
NAMES = r"scales_a.*(column|major|transpos|order|stride)|(column|major|transpos|order|stride).*scales_a"


def kernel(x, wrong):
    ends = np.append(x.expert_offsets[1:], 20)
    scales = np.asarray(x.scales_a)
    if wrong:
        scales = scales.reshape(-1).reshape(4, 20).T
    out = np.zeros((20, 128), BF16)
    for e in range(2):
        rows = slice(int(x.expert_offsets[e]), int(ends[e]))
        out[rows] = by_blocks(x.a[rows], scales[rows], x.b[e].T, x.scales_b[e].T).astype(BF16)
    return {"output": out}
