"""What the residual's buffer held before is added where no residual is meant: here a residual that is not zero where zeros are given."""

import numpy as np
from honest import BF16, f32, through

SOURCE = "https://github.com/vllm-project/vllm/pull/41972"
LINE = "trtllm_allreduce_fusion R=2 T=4 H=1024"
NAMES = r"residual_in"
UNNAMED = "what a buffer held before is not in the inputs"


def edit(inputs):
    return {"residual_in": np.zeros_like(inputs["residual_in"])}


def kernel(x, wrong):
    total = through(BF16, f32(x.allreduce_in[0]) + f32(x.allreduce_in[1]))
    old = f32(x.allreduce_in[0]) if wrong else f32(x.residual_in)  # the buffer was the first rank's before
    stored = through(BF16, total + old)
    scale = 1 / np.sqrt((stored * stored).mean(-1, keepdims=True, dtype=np.float32) + np.float32(1e-6))
    return {"residual_out": stored.astype(BF16), "norm_out": (stored * scale * f32(x.rms_gamma)).astype(BF16)}
