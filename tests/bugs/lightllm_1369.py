"""Experts are shared out in blocks of four with a remainder: the last block counts the first experts again, and what it writes of them counts from where others ended."""

import numpy as np
from honest import moe_align_block_size

SOURCE = "https://github.com/ModelTC/LightLLM/pull/1369"
LINE = "moe_align_block_size M=40 topk=4 S=512 B=64 --attr num_experts=18 --attr block_size=8 --attr pad_sorted_token_ids=true"
NAMES = r"twice|once more|round and round"
UNNAMED = "which experts' pairs are written twice is the launch's"


def kernel(x, wrong):
    out = moe_align_block_size(x)
    if wrong:  # two slots of the last block wrap round to slots 0 and 1
        flat = x.topk_ids.reshape(-1).astype(np.int64) + 1
        at = int(out["num_tokens_post_pad"][0])
        for slot in (0, 1):
            members = np.flatnonzero(flat == slot)
            rounded = -(-len(members) // 8) * 8
            out["sorted_token_ids"][at : at + len(members)] = members
            out["experts_ids"][at // 8 : (at + rounded) // 8] = slot - 1
            at += rounded
        out["num_tokens_post_pad"][0] = at
    return out
