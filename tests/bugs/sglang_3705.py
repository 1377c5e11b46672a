"""Scores of the groups that were not chosen count as 0, more than the negative ones of those that were."""

import numpy as np
from honest import grouped_gate

SOURCE = "https://github.com/sgl-project/sglang/pull/3705"
LINE = "moe_fused_gate T=16 E=256 --attr num_expert_group=8 --attr topk_group=4 --attr topk=8"
NAMES = r"dropped"


def edit(inputs):
    """Biases that make every score negative, as large negative ones do."""
    return {"bias": (inputs["bias"] * np.float32(0.1) - 3).astype(np.float32)}


def kernel(x, wrong):
    return grouped_gate(x.input_tensor, x.bias, 8, 4, 8, masked=0.0 if wrong else -np.inf)
