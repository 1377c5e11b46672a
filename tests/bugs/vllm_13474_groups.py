"""A group's score is its best expert's, not the sum of its two best."""

from honest import grouped_gate

SOURCE = "https://github.com/vllm-project/vllm/pull/13474"
LINE = "biased_grouped_topk T=16 E=256 --attr renormalize=true --attr num_expert_group=8 --attr topk_group=4 --attr topk=8"
NAMES = r"best"


def kernel(x, wrong):
    return grouped_gate(x.gating_output, x.correction_bias, 8, 4, 8, group_score=(lambda g: g.max(-1)) if wrong else None)
