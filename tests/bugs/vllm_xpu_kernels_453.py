"""Of each expert's pairs the first alone is written, the others are padding."""

import numpy as np
from honest import moe_align_block_size

SOURCE = "https://github.com/vllm-project/vllm-xpu-kernels/issues/453"
LINE = "moe_align_block_size M=64 topk=4 S=512 B=64 --attr num_experts=17 --attr block_size=8 --attr pad_sorted_token_ids=true"
NAMES = r"the first alone"


def kernel(x, wrong):
    outputs = moe_align_block_size(x)
    if wrong:
        ids, experts = outputs["sorted_token_ids"], np.append(x.topk_ids.reshape(-1), -2)
        of = experts[ids]
        ids[1:][of[1:] == of[:-1]] = x.topk_ids.size
    return outputs
