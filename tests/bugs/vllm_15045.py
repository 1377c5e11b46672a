"""Experts' rows are added up in bf16, rounded each time."""

import numpy as np
from honest import BF16, f32, through

SOURCE = "https://github.com/vllm-project/vllm/issues/15045"
LINE = "moe_sum T=6 topk=8 D=128"
NAMES = r"bf16"


def kernel(x, wrong):
    rows, total = f32(x.input_tensor), np.zeros((6, 128), np.float32)
    for k in range(8):
        total = through(BF16, total + rows[:, k]) if wrong else total + rows[:, k]
    return {"output_tensor": total.astype(BF16)}
