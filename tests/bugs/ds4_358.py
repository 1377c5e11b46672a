"""How many tokens and how many of each are exchanged: where each row's best is asked for, row i has the i-th best of the first."""

import numpy as np
from honest import f32

SOURCE = "https://github.com/antirez/ds4/pull/358"
LINE = "fast_topk T=5 V=1000 --attr topk=1"
NAMES = r"(first row|row 0)|topk.*(T\b|rows|exchanged|swapped)"
UNNAMED = "told behind others"


def kernel(x, wrong):
    scores = f32(x.values)
    order = np.argsort(-scores, axis=-1, kind="stable")
    ids = order[0, :5, None] if wrong else order[:, :1]
    values = scores[0][ids] if wrong else np.take_along_axis(scores, ids, -1)
    return {"out_values": values.astype(x.values.dtype), "indices": ids.astype(np.int64)}
