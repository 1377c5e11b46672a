"""Positions of all requests are read at a stride of 0: they begin where the first one's do."""

from honest import draft_trees

SOURCE = "https://github.com/NVIDIA/TensorRT-LLM/pull/13426"
LINE = "build_tree_kernel_efficient B=3 n=1200 --attr topk=4 --attr depth=4 --attr draft_token_num=16 --attr tree_mask_mode=1"
NAMES = r"verified_seq_len.*first|first.*verified_seq_len"


def kernel(x, wrong):
    return draft_trees(x, 1200, begin=lambda lengths, b: lengths[0 if wrong else b])
