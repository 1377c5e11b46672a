"""The expert's bias is added after the routing weight, so that it counts whole."""

import numpy as np
from honest import BF16, f32

SOURCE = "https://github.com/NVIDIA-NeMo/Automodel/pull/2591"
LINE = "fused_moe_kernel M=16 topk=2 K=96 E=4 N=48 EM=256 NB=16 --attr top_k=2 --with bias --attr mul_routed_weight=true --attr filter_expert=false"
NAMES = r"bias is added behind"


def kernel(x, wrong):
    out = np.zeros((16, 2, 48), BF16)
    for t in range(16):
        for j in range(2):
            e, weight = x.topk_ids[t, j], x.topk_weights[t, j]
            product, bias = f32(x.A[t]) @ f32(x.B[e]).T, f32(x.bias[e])
            out[t, j] = (product * weight + bias if wrong else (product + bias) * weight).astype(BF16)
    return {"C": out}
