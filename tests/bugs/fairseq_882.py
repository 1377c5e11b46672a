"""Which token is the last to be kept is read from the first column of the counts, not the last: the one that crosses the bound is lost."""

import numpy as np

SOURCE = "https://github.com/facebookresearch/fairseq/pull/882"
LINE = "top_p_renorm_prob B=8 V=500 --attr top_p=0.6"
NAMES = r"crossing|bound is met|crosses"


def kernel(x, wrong):
    out = np.zeros_like(x.probs)
    for b, row in enumerate(x.probs):
        order = np.argsort(-row, kind="stable")
        sums = np.cumsum(row[order], dtype=np.float32)
        mask = sums < np.float32(x.top_p)
        mask[np.cumsum(mask)[0 if wrong else -1]] = True
        kept = order[mask]
        out[b, kept] = row[kept] / row[kept].sum(dtype=np.float32)
    return {"renorm_probs": out}
