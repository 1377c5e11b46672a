"""The expert of a block is looked for by halving, and its number is one too small: that of the expert before."""

import numpy as np
from honest import moe_align_block_size

SOURCE = "https://github.com/PaddlePaddle/FastDeploy/pull/7687"
LINE = "moe_align_block_size M=64 topk=4 S=512 B=64 --attr num_experts=17 --attr block_size=8 --attr pad_sorted_token_ids=true"
NAMES = r"experts?(_ids)?.*(one (less|fewer|lower|below|before)|off by one|- ?1|before|less)"
UNNAMED = "told as ids that are one too small, which they are"


def kernel(x, wrong):
    out = moe_align_block_size(x)
    if wrong:
        blocks = int(out["num_tokens_post_pad"][0]) // 8
        out["experts_ids"][:blocks] -= 1
    return out
