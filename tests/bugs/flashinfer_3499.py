"""The routing scale of the weights is left at 1, whatever the model says."""

import numpy as np
from honest import grouped_gate

SOURCE = "https://github.com/flashinfer-ai/flashinfer/pull/3499"
LINE = "kimi_k2_moe_fused_gate T=16 E=384 --attr topk=8 --attr routed_scaling_factor=2.872 --attr apply_routed_scaling_factor_on_output=true"
NAMES = r"routed_scaling_factor"


def kernel(x, wrong):
    return grouped_gate(x.input_tensor, x.bias, 1, 1, x.topk, group_score=lambda g: g.max(-1), scale=1 if wrong else x.routed_scaling_factor)
