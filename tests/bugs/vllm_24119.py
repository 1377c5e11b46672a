"""routed_scaling_factor is applied by the router and by the sum of the experts."""

import numpy as np
from honest import f32

SOURCE = "https://github.com/vllm-project/vllm/pull/24119"
LINE = "moe_sum_reduce T=5 topk=8 D=256 --attr routed_scaling_factor=2.5"
NAMES = r"routed_scaling_factor.*(twice|6\.25)"


def kernel(x, wrong):
    factor = np.float32(x.routed_scaling_factor)
    total = f32(x.input_tensor).sum(1, dtype=np.float32) * factor
    return {"output_tensor": (total * factor if wrong else total).astype(x.input_tensor.dtype)}
