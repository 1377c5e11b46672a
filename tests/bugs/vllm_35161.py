"""Blocks behind the last one are given to expert 0."""

from honest import moe_align_block_size

SOURCE = "https://github.com/vllm-project/vllm/pull/35161"
LINE = "moe_align_block_size M=64 topk=4 S=512 B=64 --attr num_experts=17 --attr block_size=8 --attr pad_sorted_token_ids=true"
NAMES = r"experts_ids.*(0|zero)"


def kernel(x, wrong):
    outputs = moe_align_block_size(x)
    if wrong:
        outputs["experts_ids"][int(outputs["num_tokens_post_pad"][0]) // x.block_size :] = 0
    return outputs
