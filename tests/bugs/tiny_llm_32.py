"""What is added up and held against the bound are logarithms of probabilities, which are never above it: everything is kept."""

import numpy as np

SOURCE = "https://github.com/skyzh/tiny-llm/issues/32"
LINE = "top_p_renorm_prob B=8 V=500 --attr top_p=0.7"
NAMES = r"top_p|everything|all .*kept|nothing is (cut|dropped)"


def kernel(x, wrong):
    out = np.zeros_like(x.probs)
    for b, row in enumerate(x.probs):
        order = np.argsort(-row, kind="stable")
        before = np.cumsum(row[order], dtype=np.float32) - row[order]
        kept = order if wrong else order[before < np.float32(x.top_p)]
        out[b, kept] = row[kept] / row[kept].sum(dtype=np.float32)
    return {"renorm_probs": out}
