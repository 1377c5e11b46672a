"""The weight of a pair is read at its token: with several experts a token all of them have its first choice's."""

import numpy as np
from honest import fused_moe_pairs

SOURCE = "https://github.com/vllm-project/vllm-xpu-kernels/pull/66"
LINE = "fused_moe_kernel M=16 topk=2 K=96 E=4 N=48 EM=256 NB=16 --attr top_k=2 --attr mul_routed_weight=true --attr filter_expert=false"
NAMES = r"topk_weights"


def kernel(x, wrong):
    weights = x.topk_weights
    return fused_moe_pairs(x, np.repeat(weights[:, :1], 2, 1) if wrong else weights)
