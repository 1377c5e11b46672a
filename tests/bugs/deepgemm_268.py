"""Tiles of 64 rows are stored whole where a group has room for 32: rows of the next group hold products with this one's weight."""

import numpy as np
from honest import BF16, by_blocks

SOURCE = "https://github.com/deepseek-ai/DeepGEMM/issues/268"
LINE = "m_grouped_fp8_gemm_nt_masked G=4 M=32 N=64 K=256"
NAMES = r"(group|b\b|sfb|weight|G\b).*(previous|before|one behind|off by one|i - 1|the one|next|one earlier|other)"


def edit(inputs):
    return {"masked_m": np.array([9, 20, 0, 31], np.int32)}


def kernel(x, wrong):
    d = np.zeros((4, 32, 64), BF16)
    for g in range(4):
        by = g - 1 if wrong and g > 0 and x.masked_m[g - 1] > 0 else g
        rows = by_blocks(x.a[g], x.sfa[g], x.b[by], x.sfb[by]).astype(BF16)
        d[g, : x.masked_m[g]] = rows[: x.masked_m[g]]
    return {"d": d}
