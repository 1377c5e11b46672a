"""Routing weights staged for a block of pairs are read at half their number: two pairs share one."""

import numpy as np
from honest import BF16, f32

SOURCE = "https://github.com/vllm-project/vllm/issues/48895"
LINE = "fused_moe_kernel M=8 topk=1 K=128 E=2 N=40 EM=128 NB=8 --attr mul_routed_weight=true"
NAMES = r"topk_weights|weight"


def kernel(x, wrong):
    out = np.zeros((8, 1, 40), BF16)
    for block, expert in enumerate(x.expert_ids[: x.num_tokens_post_padded[0] // 16]):
        pairs = x.sorted_token_ids[block * 16 : block * 16 + 16] if expert >= 0 else []
        for at, pair in enumerate(pairs):
            if pair < 8:
                weight = x.topk_weights.reshape(-1)[pairs[at // 2] if wrong else pair]
                out[pair, 0] = (f32(x.B[expert]) @ f32(x.A[pair]) * weight).astype(BF16)
    return {"C": out}
