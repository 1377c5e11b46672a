"""The distance between two experts' scales is taken for that of dense ones, while those inside of an expert are read from the tensor."""

import numpy as np
from honest import BF16, by_blocks

SOURCE = "https://github.com/uxlfoundation/oneDNN/issues/5908"
LINE = "m_grouped_fp8_gemm_nt_contiguous M=136 N=136 K=256 G=3"
NAMES = r"sfb.*(packed|dense|stride|apart|distance)"


def edit(inputs):
    scales = np.asarray(inputs["sfb"])
    return {"sfb": np.concatenate([scales, scales[::-1] * np.float32(1.5)], 1)[:, :2], "m_indices": np.repeat(np.array([2, -1, 1], np.int32), [20, 108, 8])}


def kernel(x, wrong):
    out = np.zeros((136, 136), BF16)
    wide = x.sfb.base if x.sfb.base is not None else x.sfb
    for g in range(3):
        rows = np.flatnonzero(x.m_indices == g)
        scales = np.lib.stride_tricks.as_strided(x.sfb, (3, 2, 2), (16, x.sfb.strides[1], x.sfb.strides[2]))[g] if wrong else x.sfb[g]
        out[rows] = by_blocks(x.a[rows], x.sfa[rows], x.b[g], scales).astype(BF16)
    return {"d": out}
