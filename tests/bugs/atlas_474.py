"""Tiles of 64 columns are launched as if they were of 256: the second half of the columns is never written."""

from honest import fused_moe_pairs

SOURCE = "https://github.com/Avarok-Cybersecurity/atlas/pull/474"
LINE = "fused_moe_kernel M=16 topk=2 K=96 E=4 N=512 EM=256 NB=16 --attr top_k=2 --attr mul_routed_weight=true --attr filter_expert=false"
NAMES = r"second half"


def kernel(x, wrong):
    out = fused_moe_pairs(x, x.topk_weights)
    if wrong:
        out["C"][..., 256:] = 0
    return out
