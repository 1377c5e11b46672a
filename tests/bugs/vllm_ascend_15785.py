"""Rows of the bitmask are counted along the list of rows, and not by the rows' own numbers."""

import numpy as np

SOURCE = "https://github.com/vllm-project/vllm-ascend/pull/15785"
LINE = "apply_token_bitmask_inplace_cuda B=6 V=500 W=16 N=3 --with indices"
NAMES = r"bitmask.*(indices|row|in turn)"


def edit(inputs):
    return {"indices": np.array([4, 1, 5], np.int32)}


def kernel(x, wrong):
    out = np.array(x.logits)
    allowed = np.unpackbits(np.ascontiguousarray(x.bitmask).view(np.uint8), axis=1, bitorder="little")[:, : out.shape[1]].astype(bool)
    for i, row in enumerate(x.indices):
        out[row][~allowed[i if wrong else row]] = -np.inf
    return {"logits": out}
