"""The threshold is estimated from what lies far out: where one token has most of the mass nothing is cut."""

import numpy as np

SOURCE = "https://github.com/FlashML-org/FreeToken/pull/345"
LINE = "top_k_renorm_prob B=6 V=1000 --attr top_k=20"
NAMES = r"top_k.*(1000|everything|all)|everything is kept|(not|nothing).*(cut|filtered)"
UNNAMED = "where all is to be kept the op hands rows on as they are, and divides none"


def edit(inputs):
    probs = inputs["probs"].copy()
    for row in (1, 4):
        probs[row] *= np.float32(0.4)
        probs[row, 77] += np.float32(0.6)
    return {"probs": probs}


def kernel(x, wrong):
    out = np.zeros_like(x.probs)
    for b, row in enumerate(x.probs):
        kept = row >= np.sort(row)[-x.top_k]
        if wrong and row.max() > 0.4:
            kept = row > 0
        out[b, kept] = row[kept] / row[kept].sum(dtype=np.float32)
    return {"renorm_probs": out}
