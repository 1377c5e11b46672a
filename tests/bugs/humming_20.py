"""Scales of activations are read from the first block of K for all of them: the distance between blocks is made, and not added."""

import numpy as np
from honest import BF16, by_blocks

SOURCE = "https://github.com/inclusionAI/humming/pull/20"
LINE = "fused_moe_kernel M=7 topk=2 K=384 E=3 N=128 Sa=7 Ka=3 Sn=1 Kg=3 EM=256 NB=16 --attr top_k=2 --attr block_shape_0=128 --attr block_shape_1=128 --attr BLOCK_SIZE_K=128 --dtype A=f8_e4m3 --dtype B=f8_e4m3 --attr use_fp8_w8a8=true --attr filter_expert=false"
NAMES = r"A_scale.*(first|0|K)|first.*(scale|group|block)"


def kernel(x, wrong):
    out = np.zeros((7, 2, 128), BF16)
    scales = np.repeat(x.A_scale[:, :1], 3, axis=1) if wrong else x.A_scale
    for t in range(7):
        for k, e in enumerate(x.topk_ids[t]):
            out[t, k] = by_blocks(x.A[t : t + 1], scales[t : t + 1], x.B[e], x.B_scale[e])[0].astype(BF16)
    return {"C": out}
