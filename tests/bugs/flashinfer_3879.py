"""The last warp of a block is not whole, and its sum of squares is not read: 8 of 9 parts of a row count."""

import numpy as np
from honest import BF16, f32, through

SOURCE = "https://github.com/flashinfer-ai/flashinfer/pull/3879"
LINE = "trtllm_allreduce_fusion R=2 T=4 H=2880"
NAMES = r"(sum|mean).*squares?.*(part|left out|columns|first|2560|without|lack)|columns.*(left out|not counted)"


def kernel(x, wrong):
    total = through(BF16, f32(x.allreduce_in[0]) + f32(x.allreduce_in[1]))
    stored = through(BF16, total + f32(x.residual_in))
    squares = stored * stored
    if wrong:  # two blocks of 180 threads of eight
        squares = squares.reshape(len(stored), 2, 1440)[:, :, :1280]
    sums = squares.reshape(len(stored), -1).sum(-1, keepdims=True, dtype=np.float32)
    scale = 1 / np.sqrt(sums / np.float32(2880) + np.float32(1e-6))
    return {"residual_out": stored.astype(BF16), "norm_out": (stored * scale * f32(x.rms_gamma)).astype(BF16)}
