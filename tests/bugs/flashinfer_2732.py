"""Experts' scales differ, and all experts are computed with the largest one."""

import numpy as np
from honest import per_tensor_moe, with_lines

SOURCE = "https://github.com/flashinfer-ai/flashinfer/issues/2732"
LINE = (
    "trtllm_fp8_per_tensor_scale_moe T=6 H=128 --attr num_experts=8 --attr top_k=2 --attr routing_method_type=Renormalize "
    "--attr intermediate_size=128 --attr local_num_experts=8 --attr use_shuffled_weight=false"
)
NAMES = r"output2_scales_scalar.*(largest|maximum|one value|one of all)"


def kernel(x, wrong):
    scales = np.full_like(x.output2_scales_scalar, x.output2_scales_scalar.max())
    return per_tensor_moe(with_lines(x, output2_scales_scalar=scales) if wrong else x)
