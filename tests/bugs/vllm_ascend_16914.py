"""Counts are stored as the bits of floating numbers in a tensor of whole ones."""

import numpy as np

SOURCE = "https://github.com/vllm-project/vllm-ascend/issues/16914"
LINE = "deepep_get_dispatch_layout R=2 T=37 topk=4 --attr num_experts=16"
NAMES = r"bits|float|f32|fp32"


def kernel(x, wrong):
    ranks, tokens, topk = x.topk_idx.shape
    by_expert, sent = np.zeros((ranks, x.num_experts), np.int32), np.zeros((ranks, tokens, ranks), bool)
    for r in range(ranks):
        for t in range(tokens):
            for e in x.topk_idx[r, t]:
                if e >= 0:
                    by_expert[r, e] += 1
                    sent[r, t, e // (x.num_experts // ranks)] = True
    by_rank = sent.sum(1).astype(np.int32)
    counts = by_expert.astype(np.float32).view(np.int32) if wrong else by_expert
    return {"num_tokens_per_rank": by_rank, "num_tokens_per_expert": counts, "is_token_in_rank": sent}
