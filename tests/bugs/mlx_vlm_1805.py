"""The mask has as many words as whole ones fit: what is left of the vocabulary is not masked."""

import numpy as np

SOURCE = "https://github.com/Blaizzy/mlx-vlm/pull/1805"
LINE = "apply_token_bitmask_inplace_cuda B=6 V=1000 W=32"
NAMES = r"columns 992|last (partial )?(word|tile)|tail"


def kernel(x, wrong):
    out = np.array(x.logits)
    allowed = np.unpackbits(np.ascontiguousarray(x.bitmask).view(np.uint8), axis=1, bitorder="little")[:, : out.shape[1]].astype(bool)
    if wrong:
        allowed[:, out.shape[1] // 32 * 32 :] = True
    out[~allowed] = -np.inf
    return {"logits": out}
