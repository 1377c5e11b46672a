"""The last expert is not counted: ids are shifted by one, the table is not."""

import numpy as np
from honest import moe_align_block_size

SOURCE = "https://github.com/sgl-project/sglang/pull/15250"
LINE = "moe_align_block_size M=64 topk=4 S=512 B=64 --attr num_experts=17 --attr block_size=8 --attr pad_sorted_token_ids=true"
NAMES = r"last expert"


def kernel(x, wrong):
    return moe_align_block_size(x, counted=lambda slots, experts: np.where(slots == experts - 1, -9, slots) if wrong else slots)
