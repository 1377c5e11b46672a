"""With a top_p of 0 no token is kept, where the likeliest has to be."""

import numpy as np
from honest import f32

SOURCE = "https://github.com/google-deepmind/simply/pull/42"
LINE = "top_p_renorm_prob B=6 V=300 --attr top_p=0"
NAMES = r"zeros|nothing is kept|not kept|crossing|not written"


def kernel(x, wrong):
    probs = f32(x.probs)
    kept = np.where(probs == probs.max(-1, keepdims=True), probs, 0) * (0 if wrong else 1)
    return {"renorm_probs": (kept / np.maximum(kept.sum(-1, keepdims=True, dtype=np.float32), np.float32(1e-8))).astype(np.float32)}
