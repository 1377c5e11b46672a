"""Scales of the next right matrix are looked for as many blocks of rows further as the left one has, not the right one."""

import numpy as np
from honest import BF16, by_blocks

SOURCE = "https://github.com/NVIDIA/cudnn-frontend/pull/223"
LINE = "m_grouped_fp8_gemm_nt_masked G=3 M=16 N=384 K=256"
NAMES = r"sfb.*(G\b|group|stride|apart|distance|next)"


def kernel(x, wrong):
    out = np.zeros((3, 16, 384), BF16)
    # Of 16 rows there is one block, of 384 there are three.
    apart = 1 * 2 * 4 if wrong else 3 * 2 * 4
    scales = np.lib.stride_tricks.as_strided(x.sfb, x.sfb.shape, (apart, *x.sfb.strides[1:]))
    for g in range(3):
        out[g] = by_blocks(x.a[g], x.sfa[g], x.b[g], scales[g]).astype(BF16)
    return {"d": out}
