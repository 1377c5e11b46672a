"""The token at which the sum reaches top_p is not kept."""

import numpy as np

SOURCE = "https://github.com/flashinfer-ai/flashinfer/issues/2202"
LINE = "top_p_renorm_prob B=4 V=500 --attr top_p=0.9"
NAMES = r"bound is met is not kept"


def kernel(x, wrong):
    out = np.zeros_like(x.probs)
    for b, row in enumerate(x.probs):
        order = np.argsort(-row, kind="stable")
        before = np.cumsum(row[order].astype(np.float64)) - row[order]
        count = int((before < x.top_p).sum()) - (1 if wrong else 0)
        kept = row >= row[order[count - 1]]
        out[b, kept] = row[kept] / row[kept].sum(dtype=np.float32)
    return {"renorm_probs": out}
