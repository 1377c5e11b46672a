"""Tokens 16 to 31 of each tile of 32 read numbers of groups that were not yet stored: zeros, so that they keep the first group alone."""

import numpy as np
from honest import grouped_gate

SOURCE = "https://github.com/tenstorrent/tt-metal/issues/57360"
LINE = "biased_grouped_topk T=64 E=256 --attr renormalize=true --attr num_expert_group=8 --attr topk_group=4 --attr topk=8"
NAMES = r"rows?.*16.*32|16 of (every|each) 32|tokens 16"


def kernel(x, wrong):
    right = grouped_gate(x.gating_output, x.correction_bias, 8, 4, 8)
    if not wrong:
        return right
    first = grouped_gate(x.gating_output, x.correction_bias, 8, 1, 8, group_score=lambda g: -np.arange(8)[None] + 0 * g.max(-1))
    second = np.arange(64) % 32 >= 16
    return {name: np.where(second[:, None], first[name], right[name]) for name in right}
