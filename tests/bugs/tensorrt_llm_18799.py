"""Running sums are made in one block of 128: entries behind it keep their own counts."""

import numpy as np

SOURCE = "https://github.com/NVIDIA/TensorRT-LLM/pull/18799"
LINE = "prepare_moe_input M=200 topk=4 --attr num_experts=192 --attr n=64 --attr k=128"
NAMES = r"running sum|prefix sum|own counts"



def kernel(x, wrong):
    flat = x.topk_ids.reshape(-1)
    count = np.bincount(flat[(flat >= 0) & (flat < 192)], minlength=192)
    begin = np.concatenate([[0], np.cumsum(count)]).astype(np.int32)
    order = np.concatenate([np.flatnonzero(flat == e) for e in range(192)])
    place = np.zeros(len(flat), np.int32)
    place[order] = np.arange(len(order))
    tokens = np.zeros(len(flat), np.int32)
    tokens[: len(order)] = order // 4
    offsets = begin.copy()
    if wrong:
        offsets[128:192] = count[128:192]
    sizes = lambda n, k: np.stack([count, np.full(192, n), np.full(192, k)], 1).astype(np.int32)
    return {
        "expert_offsets": offsets,
        "problem_sizes1": sizes(128, 128),
        "problem_sizes2": sizes(128, 64),
        "input_permutation": tokens,
        "output_permutation": place,
    }
