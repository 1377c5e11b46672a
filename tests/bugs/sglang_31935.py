"""The limit of gate and up is looked at only where an alpha is given too."""

import numpy as np
from honest import fused_experts, silu

SOURCE = "https://github.com/sgl-project/sglang/pull/31935"
LINE = "cutlass_fused_moe T=8 X=128 K=2 L=4 I=64 X1=128 H=128 Y=64 --with swiglu_limit"
NAMES = r"swiglu_limit"


def edit(inputs):
    return {"swiglu_limit": np.full(4, 0.5, np.float32)}


def kernel(x, wrong):
    def activation(gate, up, e):
        if not wrong:
            limit = x.swiglu_limit[e]
            gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
        return silu(gate) * up

    return fused_experts(x, activation)
