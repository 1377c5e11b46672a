"""With top_p of 1 no sum exceeds it, and the search for the first that does gives 0: the likeliest token alone is left."""

import numpy as np

SOURCE = "https://github.com/BlinkDL/ChatRWKV/pull/170"
LINE = "top_p_renorm_prob B=4 V=100 --attr top_p=1"
NAMES = r"top_p|likeliest|largest"


def kernel(x, wrong):
    probs = x.probs
    kept = np.where(probs == probs.max(-1, keepdims=True), probs, 0) if wrong else probs
    return {"renorm_probs": (kept / kept.sum(-1, keepdims=True, dtype=np.float32)).astype(np.float32)}
