"""Experts are filled up to 64 with logits of 0, and these are chosen where the others' are lower."""

import numpy as np
from honest import f32, largest

SOURCE = "https://github.com/vllm-project/tpu-inference/pull/1252"
LINE = "topk_softmax T=12 E=60 topk=6"
NAMES = r"(beyond|behind|outside|no expert|padd|larger than|range).*|\b6[0-3]\b|logits? of 0"


def edit(inputs):
    logits = np.asarray(inputs["gating_output"])
    return {"gating_output": (logits.astype(np.float32) - 1).astype(logits.dtype)}


def kernel(x, wrong):
    logits = f32(x.gating_output)
    if wrong:
        logits = np.concatenate([logits, np.zeros((12, 4), np.float32)], 1)
    shares = np.exp(logits - logits.max(-1, keepdims=True))
    shares = shares / shares.sum(-1, keepdims=True, dtype=np.float32)
    ids = largest(shares, 6)
    return {"topk_weights": np.take_along_axis(shares, ids, -1), "topk_ids": ids.astype(np.int32)}
