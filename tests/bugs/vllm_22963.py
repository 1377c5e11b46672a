"""The number of masks is that of all rows: rows that no index names are masked, too."""

import numpy as np

SOURCE = "https://github.com/vllm-project/vllm/pull/22963"
LINE = "apply_token_bitmask_inplace_cuda B=6 V=500 W=16 N=3 --with indices"
NAMES = r"indices.*(ignored|not (looked|handed|given)|left out|none|all)|all rows|(without|no) indices"


def edit(inputs):
    return {"indices": np.array([4, 1, 5], np.int32)}


def kernel(x, wrong):
    out = np.array(x.logits)
    allowed = np.unpackbits(np.ascontiguousarray(x.bitmask).view(np.uint8), axis=1, bitorder="little")[:, : out.shape[1]].astype(bool)
    for row in range(6) if wrong else x.indices:
        out[row][~allowed[row]] = -np.inf
    return {"logits": out}
