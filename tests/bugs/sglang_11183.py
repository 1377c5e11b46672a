"""A thread divides by the sum of the weights before the winners have written theirs: here and there it is still 0."""

import numpy as np
from honest import grouped_gate

SOURCE = "https://github.com/sgl-project/sglang/pull/11183"
LINE = "moe_fused_gate T=9 E=256 --attr num_expert_group=8 --attr topk_group=4 --attr topk=8"
NAMES = r"topk_weights.*(infinit|inf|NaN)"


def kernel(x, wrong):
    outputs = grouped_gate(x.input_tensor, x.bias, 8, 4, 8)
    if wrong:
        with np.errstate(all="ignore"):
            outputs["topk_weights"][[2, 6]] /= np.float32(0)
    return outputs
