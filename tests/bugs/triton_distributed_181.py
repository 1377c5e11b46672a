"""Lanes behind the end of a block of 1024 slots read as expert 0, and are counted for it."""

import numpy as np

SOURCE = "https://github.com/ByteDance-Seed/Triton-distributed/issues/181"
LINE = "deepep_get_dispatch_layout R=2 T=37 topk=4 --attr num_experts=16"
NAMES = r"num_tokens_per_expert.*(first|0|876)"


def kernel(x, wrong):
    ranks, tokens, topk = x.topk_idx.shape
    experts = x.num_experts
    by_expert, by_rank, sent = np.zeros((ranks, experts), np.int32), np.zeros((ranks, ranks), np.int32), np.zeros((ranks, tokens, ranks), bool)
    for r in range(ranks):
        for t in range(tokens):
            for e in x.topk_idx[r, t]:
                if e >= 0:
                    by_expert[r, e] += 1
                    sent[r, t, e // (experts // ranks)] = True
        by_rank[r] = sent[r].sum(0)
    if wrong:
        by_expert[:, 0] += -(-tokens * topk // 1024) * 1024 - tokens * topk
    return {"num_tokens_per_rank": by_rank, "num_tokens_per_expert": by_expert, "is_token_in_rank": sent}
