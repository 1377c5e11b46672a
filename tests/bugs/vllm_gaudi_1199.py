"""Masks of rows that no grammar rules over begin as zeros, and are applied to all rows: nothing is left of theirs."""

import numpy as np

SOURCE = "https://github.com/vllm-project/vllm-gaudi/pull/1199"
LINE = "apply_token_bitmask_inplace_cuda B=8 V=640 W=20 N=3 --with indices"
NAMES = r"indices|rows? .*(named|listed|others)"


def kernel(x, wrong):
    logits = x.logits.copy()
    allowed = np.unpackbits(np.ascontiguousarray(x.bitmask).view(np.uint8), axis=1, bitorder="little")[:, :640].astype(bool)
    for row in range(len(logits)):
        if row in x.indices:
            logits[row, ~allowed[row]] = -np.inf
        elif wrong:
            logits[row] = -np.inf
    return {"logits": logits}
