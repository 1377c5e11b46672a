"""Which way weights lie is told by their shape, which says nothing where they are square: they are multiplied untransposed."""

import numpy as np
from honest import fused_moe_pairs, with_lines

SOURCE = "https://github.com/unslothai/unsloth-zoo/issues/849"
LINE = "fused_moe_kernel M=16 topk=2 K=96 E=4 N=96 EM=256 NB=16 --attr top_k=2 --attr mul_routed_weight=true --attr filter_expert=false"
NAMES = r"B.*(transposed|rows are taken for its columns|columns)"


def kernel(x, wrong):
    return fused_moe_pairs(with_lines(x, B=np.swapaxes(x.B, 1, 2)) if wrong else x, x.topk_weights)
