"""A search for the threshold ends above small probabilities: with top_p of 1, which keeps everything, they become 0."""

import numpy as np

SOURCE = "https://github.com/flashinfer-ai/flashinfer/issues/708"
LINE = "top_p_renorm_prob B=4 V=21 --attr top_p=1"
NAMES = r"not above.*counts as zero"


def edit(inputs):
    """Three likely tokens, and others of 1e-9 to 9e-9."""
    row = np.array([0.5, 0.3, 0.2] + list(np.linspace(1, 9, 18) * 1e-9), np.float32)
    return {"probs": np.tile(row, (4, 1))}


def kernel(x, wrong):
    kept = np.where(x.probs > (1e-8 if wrong else 0), x.probs, np.float32(0))
    return {"renorm_probs": kept / kept.sum(-1, keepdims=True, dtype=np.float32)}
