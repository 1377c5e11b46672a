"""Logits are divided by the temperature twice."""

import numpy as np

SOURCE = "https://github.com/RL-Align/RL-Kernel/issues/81"
LINE = "softmax B=6 V=500 --attr temperature=0.7"
NAMES = r"temperature"


def kernel(x, wrong):
    scores = x.logits / np.float32(x.temperature ** 2 if wrong else x.temperature)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return {"probs": weights / weights.sum(-1, keepdims=True, dtype=np.float32)}
