"""The limit of gate and up is not applied: a plain silu times up."""

import numpy as np
from honest import fused_experts, silu

SOURCE = "https://github.com/lightseekorg/tokenspeed/pull/1647"
LINE = "cutlass_fused_moe T=5 X=128 K=2 L=4 I=64 X1=128 H=128 Y=64 --with swiglu_limit"
NAMES = r"swiglu_limit|limit"


def kernel(x, wrong):
    if wrong:
        return fused_experts(x, lambda gate, up, e: silu(gate) * up)
    return fused_experts(x, lambda gate, up, e: silu(np.minimum(gate, x.swiglu_limit[e])) * np.clip(up, -x.swiglu_limit[e], x.swiglu_limit[e]))
