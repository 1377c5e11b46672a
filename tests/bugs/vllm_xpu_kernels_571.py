"""Ids of -1 are counted where they point to: at the last expert of the counts before."""

import numpy as np
from honest import moe_align_block_size

SOURCE = "https://github.com/vllm-project/vllm-xpu-kernels/issues/571"
LINE = "moe_align_block_size M=24 topk=4 S=512 B=64 --attr num_experts=17 --attr block_size=8 --attr pad_sorted_token_ids=true --special absent-ids"
NAMES = r"-1|absent|negative|below 0"


def kernel(x, wrong):
    return moe_align_block_size(x, counted=lambda ids, experts: np.where(ids == 0, experts - 1, ids) if wrong else ids)
