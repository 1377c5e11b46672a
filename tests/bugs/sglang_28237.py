"""The fused shared expert is divided by a factor that multiplies only the others: 0.4 of its weight is left."""

import numpy as np
from honest import F32, grouped_gate

SOURCE = "https://github.com/sgl-project/sglang/pull/28237"
LINE = (
    "moe_fused_gate T=8 E=256 --attr num_expert_group=8 --attr topk_group=4 --attr topk=9 --attr num_fused_shared_experts=1 "
    "--attr routed_scaling_factor=2.5 --attr apply_routed_scaling_factor_on_output=true"
)
NAMES = r"0\.4 x golden.*one column: 8"


def kernel(x, wrong):
    routed = grouped_gate(x.input_tensor, x.bias, x.num_expert_group, x.topk_group, x.topk - 1, scale=x.routed_scaling_factor)
    rows = len(routed["topk_ids"])
    shared = np.full((rows, 1), 1 / x.routed_scaling_factor if wrong else 1, F32)
    ids = np.full((rows, 1), x.input_tensor.shape[1], np.int32)
    return {"topk_weights": np.concatenate([routed["topk_weights"], shared], -1), "topk_ids": np.concatenate([routed["topk_ids"], ids], -1)}
