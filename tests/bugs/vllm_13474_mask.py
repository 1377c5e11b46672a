"""The same, in another project's PyTorch code."""

import numpy as np
from honest import grouped_gate

SOURCE = "https://github.com/vllm-project/vllm/pull/13474"
LINE = "biased_grouped_topk T=16 E=256 --attr renormalize=true --attr num_expert_group=8 --attr topk_group=4 --attr topk=8"
NAMES = r"dropped"


def edit(inputs):
    """Biases that make every score negative, as large negative ones do."""
    return {"correction_bias": (inputs["correction_bias"] * np.float32(0.1) - 3).astype(np.float32)}


def kernel(x, wrong):
    return grouped_gate(x.gating_output, x.correction_bias, 8, 4, 8, masked=0.0 if wrong else -np.inf)
