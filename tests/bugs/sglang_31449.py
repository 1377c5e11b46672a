"""Where weights are divided by their sum, the factor of the routed experts is left out."""

import numpy as np
from honest import f32, grouped_gate

SOURCE = "https://github.com/sgl-project/sglang/pull/31449"
LINE = "biased_grouped_topk T=16 E=64 --attr topk=6 --attr renormalize=true --attr num_expert_group=8 --attr topk_group=4 --attr routed_scaling_factor=2.5 --attr apply_routed_scaling_factor_on_output=true"
NAMES = r"routed_scaling_factor"


def kernel(x, wrong):
    return grouped_gate(x.gating_output, x.correction_bias, 8, 4, 6, scale=None if wrong else 2.5)
