"""Outputs whose innermost dimension is the expert are stored as if it were the outermost: memory of one order, read in the other."""

import numpy as np
from honest import BF16, by_blocks

SOURCE = "https://github.com/flashinfer-ai/flashinfer/issues/3103"
LINE = "m_grouped_fp8_gemm_nt_masked G=2 M=64 N=24 K=128"
NAMES = r"(expert|group|dimension|matri|order).*(innermost|interleav|order|dimension|between)|stored.*(order|stride|apart)"


def edit(inputs):
    return {"masked_m": np.array([64, 64], np.int32)}


def kernel(x, wrong):
    out = np.stack([by_blocks(x.a[g], x.sfa[g], x.b[g], x.sfb[g]) for g in range(len(x.a))]).astype(BF16)
    return {"d": np.ascontiguousarray(out.reshape(-1).reshape(*out.shape[1:], -1).transpose(2, 0, 1)) if wrong else out}
