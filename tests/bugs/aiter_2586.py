"""The ranks' sum is not rounded before the residual is added, as the ops apart round it."""

import numpy as np
from honest import BF16, f32, through

SOURCE = "https://github.com/ROCm/aiter/pull/2586"
LINE = "trtllm_allreduce_fusion R=2 T=4 H=7168"
NAMES = r"not rounded"


def kernel(x, wrong):
    total = f32(x.allreduce_in[0]) + f32(x.allreduce_in[1])
    stored = through(BF16, (total if wrong else through(BF16, total)) + f32(x.residual_in))
    scale = 1 / np.sqrt((stored * stored).mean(-1, keepdims=True, dtype=np.float32) + np.float32(1e-6))
    return {"residual_out": stored.astype(BF16), "norm_out": (stored * scale * f32(x.rms_gamma)).astype(BF16)}
