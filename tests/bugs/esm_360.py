"""A token that crosses top_p is not kept: what is kept stays below it."""

import numpy as np

SOURCE = "https://github.com/Biohub/esm/pull/360"
LINE = "top_p_renorm_prob B=4 V=300 --attr top_p=0.8"
NAMES = r"cross|met"


def kernel(x, wrong):
    out = np.zeros_like(x.probs)
    for b, row in enumerate(x.probs):
        order = np.argsort(-row, kind="stable")
        sums = np.cumsum(row[order].astype(np.float64))
        kept = order[(sums if wrong else sums - row[order]) < x.top_p]
        kept = kept if len(kept) else order[:1]
        out[b, kept] = row[kept] / row[kept].sum(dtype=np.float32)
    return {"renorm_probs": out}
