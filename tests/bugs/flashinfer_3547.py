"""Experts are asked for by their numbers among all ranks': on a rank that does not begin with the first none is found, and the output is zero."""

from honest import per_tensor_moe

SOURCE = "https://github.com/flashinfer-ai/flashinfer/issues/3547"
LINE = (
    "trtllm_fp8_per_tensor_scale_moe T=6 H=128 --attr num_experts=8 --attr top_k=2 --attr routing_method_type=Renormalize "
    "--attr intermediate_size=128 --attr local_expert_offset=4 --attr local_num_experts=4 --attr use_shuffled_weight=false"
)
NAMES = r"zero|local_expert_offset"


def kernel(x, wrong):
    return per_tensor_moe(x, weights_of=(lambda e: e - 8) if wrong else (lambda e: e - x.local_expert_offset))
