"""-1, which stands for no expert here, is the last expert: a table is asked with it as an index from its end."""

import numpy as np
from honest import moe_align_block_size

SOURCE = "https://github.com/sgl-project/sglang/issues/40156"
LINE = "moe_align_block_size M=64 topk=4 S=512 B=64 --attr num_experts=17 --attr block_size=8 --attr pad_sorted_token_ids=true"
NAMES = r"topk_ids.*(last|none)|last expert"


def edit(inputs):
    ids = np.array(inputs["topk_ids"])
    ids[::5, 1] = -1
    return {"topk_ids": ids}


def kernel(x, wrong):
    return moe_align_block_size(x, lambda slots, experts: np.where(slots == 0, experts - 1, slots) if wrong else slots)
