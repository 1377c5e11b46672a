"""The weights are the scores with the bias that is meant for the choice alone."""

from honest import grouped_gate

SOURCE = "https://github.com/PaddlePaddle/PaddleFormers/pull/3452"
LINE = "biased_grouped_topk T=16 E=64 --attr topk=6 --attr renormalize=true --attr num_expert_group=8 --attr topk_group=4"
NAMES = r"bias"


def kernel(x, wrong):
    return grouped_gate(x.gating_output, x.correction_bias, 8, 4, 6, weights="biased" if wrong else "unbiased")
