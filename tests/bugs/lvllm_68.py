"""A buffer that is kept token by token is read expert by expert: choices and tokens change places."""

import numpy as np
from honest import f32

SOURCE = "https://github.com/guqiong96/Lvllm/pull/68"
LINE = "moe_sum T=6 topk=8 D=128"
NAMES = r"order|exchanged|transposed|dimensions"


def kernel(x, wrong):
    rows = x.input_tensor
    if wrong:
        rows = rows.reshape(8, 6, 128).transpose(1, 0, 2)
    total = np.zeros((6, 128), np.float32)
    for k in range(8):
        total += f32(rows[:, k])
    return {"output_tensor": total.astype(x.input_tensor.dtype)}
