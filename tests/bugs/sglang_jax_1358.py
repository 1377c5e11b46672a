"""The limit is applied to the activated gate, as some models have it, where the gate itself is limited."""

import numpy as np
from honest import fused_experts, silu

SOURCE = "https://github.com/sgl-project/sglang-jax/pull/1358"
LINE = "cutlass_fused_moe T=5 X=128 K=2 L=4 I=64 X1=128 H=128 Y=64 --with swiglu_limit"
NAMES = r"limit"


def kernel(x, wrong):
    def activation(gate, up, e):
        limit = x.swiglu_limit[e]
        activated = np.minimum(silu(gate), limit) if wrong else silu(np.minimum(gate, limit))
        return activated * np.clip(up, -limit, limit)

    return fused_experts(x, activation)
