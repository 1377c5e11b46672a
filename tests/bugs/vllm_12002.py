"""Weights are made of the biased scores, which are meant for choosing only."""

from honest import grouped_gate

SOURCE = "https://github.com/vllm-project/vllm/pull/12002"
LINE = "moe_fused_gate T=16 E=256 --attr num_expert_group=8 --attr topk_group=4 --attr topk=8"
NAMES = r"bias"


def kernel(x, wrong):
    return grouped_gate(x.input_tensor, x.bias, 8, 4, 8, weights='biased' if wrong else 'unbiased')
