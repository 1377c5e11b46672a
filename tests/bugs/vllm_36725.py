"""Router logits are rounded to bf16, though the kernel takes fp32."""

from honest import BF16, grouped_gate, through

SOURCE = "https://github.com/vllm-project/vllm/pull/36725"
LINE = "moe_fused_gate T=16 E=256 --attr num_expert_group=8 --attr topk_group=4 --attr topk=8"
NAMES = r"input_tensor.*bf16"


def kernel(x, wrong):
    logits = through(BF16, x.input_tensor) if wrong else x.input_tensor
    return grouped_gate(logits, x.bias, x.num_expert_group, x.topk_group, x.topk)
