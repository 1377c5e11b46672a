"""Alpha and beta of the activation are dropped on the way: 1 and 0 stand for them."""

import numpy as np
from honest import f32, fused_experts, silu

SOURCE = "https://github.com/vllm-project/vllm/pull/49941"
LINE = "cutlass_fused_moe T=8 X=128 K=2 L=4 I=64 X1=128 H=128 Y=64 --with swiglu_alpha --with swiglu_beta --with swiglu_limit"
NAMES = r"swiglu_alpha.*swiglu_beta|swiglu_beta.*swiglu_alpha"


def kernel(x, wrong):
    def activation(gate, up, e):
        limit = np.float32(x.swiglu_limit[e])
        alpha, beta = (np.float32(1), np.float32(0)) if wrong else (np.float32(x.swiglu_alpha[e]), np.float32(x.swiglu_beta[e]))
        gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
        return gate / (np.float32(1) + np.exp(-alpha * gate)) * (up + beta)

    return fused_experts(x, activation)
