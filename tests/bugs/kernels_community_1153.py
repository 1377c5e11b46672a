"""Tiles are 64 columns wide and stores know no end of the row: what lies behind 48 columns goes over the next row's first 16."""

import numpy as np
from honest import f32, fused_moe_pairs

SOURCE = "https://github.com/huggingface/kernels-community/issues/1153"
LINE = "fused_moe_kernel M=16 topk=2 K=96 E=4 N=48 EM=256 NB=16 --attr top_k=2 --attr mul_routed_weight=true --attr filter_expert=false"
NAMES = r"next row|beyond the (row|end)|spill|overhang"


def kernel(x, wrong):
    out = fused_moe_pairs(x, x.topk_weights)["C"]
    if wrong:
        rows, weights = out.reshape(-1, 48), x.B.reshape(-1, 96)
        for i in range(0, len(rows) - 1, 2):  # of two rows that race one wins
            e = x.topk_ids.reshape(-1)[i]
            behind = [min(e * 48 + 48 + c, len(weights) - 1) for c in range(16)]
            rows[i + 1, :16] = (f32(weights[behind]) @ f32(x.A[i // 2]) * x.topk_weights.reshape(-1)[i]).astype(rows.dtype)
    return {"C": out}
