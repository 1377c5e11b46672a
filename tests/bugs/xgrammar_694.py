"""The mask has words for whole ones of the vocabulary alone: the tokens behind them stay as they are."""

import numpy as np

SOURCE = "https://github.com/mlc-ai/xgrammar/pull/694"
LINE = "apply_token_bitmask_inplace_cuda B=6 V=1000 W=32"
NAMES = r"bitmask|mask|word|tail|last|input"


def kernel(x, wrong):
    out = np.array(x.logits)
    bits = np.unpackbits(np.ascontiguousarray(x.bitmask).view(np.uint8), axis=1, bitorder="little")[:, :1000].astype(bool)
    if wrong:
        bits[:, 992:] = True
    out[~bits] = -np.inf
    return {"logits": out}
