"""Weights are divided by their sum, whatever renormalize says."""

import numpy as np
from honest import f32, grouped_gate, sigmoid

SOURCE = "https://github.com/PaddlePaddle/FastDeploy/pull/4449"
LINE = "biased_grouped_topk T=16 E=64 --attr topk=6 --attr renormalize=false --attr num_expert_group=8 --attr topk_group=4"
NAMES = r"renormalize"


def kernel(x, wrong):
    out = grouped_gate(x.gating_output, x.correction_bias, 8, 4, 6)
    if not wrong:
        out["topk_weights"] = np.take_along_axis(sigmoid(x.gating_output), out["topk_ids"], -1).astype(np.float32)
    return out
