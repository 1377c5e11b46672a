"""Rows are cut to top_k and divided by what is left before top_p is applied, where both are of the row itself."""

from honest import top_k_top_p

SOURCE = "https://github.com/sgl-project/sglang/pull/36173"
LINE = "top_k_top_p_sampling_from_probs B=16 U=16 V=1000 --attr top_k=20 --attr top_p=0.4 --attr philox_seed=1234 --attr filter_apply_order=joint"
NAMES = r"filter_apply_order=top_k_first"


def kernel(x, wrong):
    return top_k_top_p(x, joint=not wrong)
