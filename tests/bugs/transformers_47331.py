"""Scales of a batch lie one row apart in the place of one matrix: batch g reads its scales g rows further on in the first."""

import numpy as np
from honest import BF16, by_blocks

SOURCE = "https://github.com/huggingface/transformers/issues/47331"
LINE = "m_grouped_fp8_gemm_nt_masked G=4 M=16 N=128 K=256"
NAMES = r"sfa"


def kernel(x, wrong):
    out = np.zeros((4, 16, 128), BF16)
    flat = np.array(x.sfa).reshape(-1, x.sfa.shape[-1])
    for g, rows in enumerate(x.masked_m):
        scales = flat[g : g + 16] if wrong else x.sfa[g]
        out[g, :rows] = by_blocks(x.a[g, :rows], scales[:rows], x.b[g], x.sfb[g]).astype(BF16)
    return {"d": out}
