"""The search for the largest begins at -1 with expert 0: where every score with its bias is less, expert 0 is chosen."""

import numpy as np
from honest import f32, sigmoid

SOURCE = "https://github.com/vllm-project/vllm/pull/31478"
LINE = "topk_sigmoid T=12 E=64 topk=4 --with correction_bias"
NAMES = r"-1\b|(less|below|smaller|negative).*(score|bias)|(score|bias).*(less|below|negative)|begins?"


def edit(inputs):
    bias = np.asarray(inputs["correction_bias"]).astype(np.float32)
    return {"correction_bias": (np.abs(bias) * np.float32(0.02) - np.float32(1.97)).astype(bias.dtype)}


def kernel(x, wrong):
    scores = sigmoid(x.gating_output)
    biased = scores + f32(x.correction_bias)
    ids = np.zeros((len(scores), 4), np.int32)
    for t, row in enumerate(biased):
        row = row.copy()
        for k in range(4):
            best = int(row.argmax())
            ids[t, k] = best if row[best] > -1 or not wrong else 0
            row[ids[t, k]] = -10000
    return {"topk_weights": np.take_along_axis(scores, ids, -1), "topk_ids": ids}
