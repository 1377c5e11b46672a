"""The gate is limited on both sides, where it is to be limited from above alone."""

import numpy as np
from honest import fused_experts

SOURCE = "https://github.com/anthony-chaudhary/fak/issues/4837"
LINE = "cutlass_fused_moe T=5 X=128 K=2 L=4 I=64 X1=128 H=128 Y=64 --with swiglu_alpha --with swiglu_beta --with swiglu_limit"
NAMES = r"gate.*(both|below|-limit|symmetric|magnitude|clamp)"
UNNAMED = "one side of a limit is the kernel's own"


def kernel(x, wrong):
    def activation(gate, up, e):
        limit = x.swiglu_limit[e]
        gate, up = np.clip(gate, -limit if wrong else -np.inf, limit), np.clip(up, -limit, limit)
        return gate / (1 + np.exp(-x.swiglu_alpha[e] * gate)) * (up + x.swiglu_beta[e])

    return fused_experts(x, activation)
