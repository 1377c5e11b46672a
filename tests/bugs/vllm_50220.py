"""Row offsets in 32 bits: rows behind 2^31 elements are read from elsewhere."""

import numpy as np
from honest import f32

SOURCE = "https://github.com/vllm-project/vllm/pull/50220"
LINE = "moe_sum_reduce T=65536 topk=10 D=4096 --attr routed_scaling_factor=1 --window T=52425..52433"
NAMES = r"2\^31"


def kernel(x, wrong):
    rows = f32(x.input_tensor).sum(1, dtype=np.float32)
    if wrong:  # rows from 52429 on begin beyond 2^31: what an address before the tensor holds
        rows[52429 - 52425 :] = f32(x.input_tensor)[::-1].sum(1, dtype=np.float32)[52429 - 52425 :]
    return {"output_tensor": rows.astype(x.input_tensor.dtype)}
