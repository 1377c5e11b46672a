"""A row's scale is looked for at its expert's number, where it lies at the row's."""

import numpy as np
from honest import BF16, by_blocks

SOURCE = "https://github.com/sgl-project/sglang/pull/6772"
LINE = "m_grouped_fp8_gemm_nt_contiguous M=150 N=24 K=256 G=3"
NAMES = r"sfa.*(m_indices|expert|group)"


def kernel(x, wrong):
    out = np.zeros((len(x.a), x.b.shape[1]), BF16)
    for g in range(len(x.b)):
        rows = np.flatnonzero(x.m_indices == g)
        scales = x.sfa[np.full(len(rows), g)] if wrong else x.sfa[rows]
        out[rows] = by_blocks(x.a[rows], scales, x.b[g], x.sfb[g]).astype(BF16)
    return {"d": out}
