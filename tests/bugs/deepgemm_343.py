"""A descriptor is overwritten while a copy that reads it is under way: one tile of one group is multiplied with the next group's weights."""

import numpy as np
from honest import BF16, by_blocks

SOURCE = "https://github.com/deepseek-ai/DeepGEMM/pull/343"
LINE = "m_grouped_fp8_gemm_nt_masked G=3 M=64 N=64 K=128"
NAMES = r"(group|b|weight).*(next|behind|another|group 2|1).*|next group"


def kernel(x, wrong):
    out = np.zeros((3, 64, 64), BF16)
    for g in range(3):
        out[g] = by_blocks(x.a[g], x.sfa[g], x.b[g], x.sfb[g]).astype(BF16)
    if wrong:
        out[1, :, 32:] = by_blocks(x.a[1], x.sfa[1], x.b[2], x.sfb[2]).astype(BF16)[:, 32:]
    return {"d": out}
