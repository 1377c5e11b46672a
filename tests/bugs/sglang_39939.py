"""Where alpha is given and beta is not handed on, up lacks what is added to it."""

import numpy as np
from honest import fused_experts

SOURCE = "https://github.com/sgl-project/sglang/pull/39939"
LINE = "cutlass_fused_moe T=5 X=128 K=2 L=4 I=64 X1=128 H=128 Y=64 --with swiglu_alpha --with swiglu_beta --with swiglu_limit"
NAMES = r"swiglu_beta"


def kernel(x, wrong):
    def activation(gate, up, e):
        limit = x.swiglu_limit[e]
        gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
        return gate / (1 + np.exp(-x.swiglu_alpha[e] * gate)) * (up + (0 if wrong else x.swiglu_beta[e]))

    return fused_experts(x, activation)
