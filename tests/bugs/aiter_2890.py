"""The second stage does not wait for the other rank's writes: its half of the sum is not there yet."""

import numpy as np
from honest import BF16, f32, through

SOURCE = "https://github.com/ROCm/aiter/pull/2890"
LINE = "trtllm_allreduce_fusion R=2 T=8 H=512"
NAMES = r"half|rows? 4\.\.7|last 4|rank"


def kernel(x, wrong):
    total = through(BF16, f32(x.allreduce_in[0]) + f32(x.allreduce_in[1]))
    if wrong:
        total[4:] = 0
    stored = through(BF16, total + f32(x.residual_in))
    scale = 1 / np.sqrt((stored * stored).mean(-1, keepdims=True, dtype=np.float32) + np.float32(1e-6))
    return {"residual_out": stored.astype(BF16), "norm_out": (stored * scale * f32(x.rms_gamma)).astype(BF16)}
