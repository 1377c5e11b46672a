"""The router's weights are multiplied with routed_scaling_factor, and so is what is made with them: it counts twice."""

from honest import grouped_gate

SOURCE = "https://github.com/vllm-project/vllm/pull/45037"
LINE = "kimi_k2_moe_fused_gate T=16 E=384 --attr topk=8 --attr routed_scaling_factor=2.5 --attr apply_routed_scaling_factor_on_output=true"
NAMES = r"routed_scaling_factor.*(twice|6\.25)"


def kernel(x, wrong):
    factor = x.routed_scaling_factor
    return grouped_gate(x.input_tensor, x.bias, 1, 1, x.topk, group_score=lambda g: g.max(-1), scale=factor * factor if wrong else factor)
