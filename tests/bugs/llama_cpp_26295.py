"""The search for an expert among a token's ends at the first hit: where it is named twice the second pair is never computed."""

from honest import fused_moe_pairs

SOURCE = "https://github.com/ggml-org/llama.cpp/pull/26295"
LINE = (
    "fused_moe_kernel M=16 topk=3 K=96 E=4 N=48 EM=256 NB=16 --attr top_k=3 --attr mul_routed_weight=true --attr "
    "filter_expert=false --special repeated-ids"
)
NAMES = r"(pair|twice|repeat|again|second|duplicate|same expert|slot)"
UNNAMED = "that a token names an expert twice is told of no pair"


def kernel(x, wrong):
    out = fused_moe_pairs(x, x.topk_weights)
    for t, ids in enumerate(x.topk_ids if wrong else []):
        for k, e in enumerate(ids):
            if e in ids[:k]:
                out["C"][t, k] = 0
    return out
