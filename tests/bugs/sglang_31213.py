"""Biases in a narrow band at a large offset lose their differences in bf16."""

import numpy as np
from honest import BF16, grouped_gate, through

SOURCE = "https://github.com/sgl-project/sglang/pull/31213"
LINE = "moe_fused_gate T=16 E=256 --attr num_expert_group=8 --attr topk_group=4 --attr topk=8"
NAMES = r"bf16"


def edit(inputs):
    return {"bias": (np.float32(6.94) + np.float32(0.12) * np.tanh(inputs["bias"] - 1)).astype(np.float32)}


def kernel(x, wrong):
    return grouped_gate(x.input_tensor, through(BF16, x.bias) if wrong else x.bias, 8, 4, 8)
