"""Two experts' scales are not there: the product logs that and returns without multiplying, and these experts add nothing."""

from honest import per_tensor_moe

SOURCE = "https://github.com/kekzl/imp/pull/1403"
LINE = (
    "trtllm_fp8_per_tensor_scale_moe T=6 H=128 --attr num_experts=8 --attr top_k=2 --attr routing_method_type=Renormalize "
    "--attr intermediate_size=128 --attr local_num_experts=8 --attr use_shuffled_weight=false"
)
NAMES = r"expert"


def kernel(x, wrong):
    return per_tensor_moe(x, weights_of=(lambda e: -1 if e in (2, 5) else e) if wrong else (lambda e: e))
