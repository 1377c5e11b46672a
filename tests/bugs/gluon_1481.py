"""Sums that are held against top_p are taken in the order of the tokens, not of falling probability."""

import numpy as np

SOURCE = "https://github.com/dmlc/gluon-nlp/issues/1481"
LINE = "top_p_renorm_prob B=4 V=500 --attr top_p=0.9"
NAMES = r"order of the tokens|sorted"

UNNAMED = "no known mistake adds up in another order"


def kernel(x, wrong):
    out = np.zeros_like(x.probs)
    for b, row in enumerate(x.probs):
        order = np.arange(len(row)) if wrong else np.argsort(-row, kind="stable")
        sums = np.cumsum(row[order].astype(np.float64))
        kept = order[: int(np.searchsorted(sums, x.top_p)) + 1]
        least = row[kept].min()
        keep = np.isin(np.arange(len(row)), kept) if wrong else row >= least
        out[b] = np.where(keep, row, 0) / row[keep].sum(dtype=np.float32)
    return {"renorm_probs": out}
