"""Gate and up have scales of their own, and the gate's serves both."""

from honest import per_tensor_moe, with_lines

SOURCE = "https://github.com/vllm-project/vllm/issues/54974"
LINE = (
    "trtllm_fp8_per_tensor_scale_moe T=6 H=128 --attr num_experts=8 --attr top_k=2 --attr routing_method_type=Renormalize "
    "--attr intermediate_size=128 --attr local_num_experts=8 --attr use_shuffled_weight=false"
)
NAMES = r"output1_scales_scalar.*output1_scales_gate_scalar|output1_scales_gate_scalar.*output1_scales_scalar"


def edit(inputs):  # of like magnitude, as a checkpoint has them
    return {"output1_scales_scalar": inputs["output1_scales_gate_scalar"][::-1].copy()}


def kernel(x, wrong):
    return per_tensor_moe(with_lines(x, output1_scales_scalar=x.output1_scales_gate_scalar) if wrong else x)
