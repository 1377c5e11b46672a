"""Of the scores that equal the least one chosen 1024 are kept at most: places that are left hold -1."""

import numpy as np
from honest import f32

SOURCE = "https://github.com/sgl-project/sglang/pull/30645"
LINE = "fast_topk_v2 B=2 L=8320"
NAMES = r"-1"


def edit(inputs):  # a hundred scores above zero, thousands of zeros
    score = np.zeros_like(inputs["score"])
    score[:, 7:8007:80] = np.arange(1, 101, dtype=np.float32)
    return {"score": score, "lengths": np.full_like(inputs["lengths"], 8320)}


def kernel(x, wrong):
    out = np.full((len(x.lengths), 2048), -1, np.int32)
    for b, n in enumerate(x.lengths):
        if n <= 2048:
            out[b, : max(n, 0)] = np.arange(max(n, 0))
            continue
        scores = f32(x.score[b, :n])
        chosen = np.argsort(-scores, kind="stable")[:2048]
        ties = chosen[scores[chosen] == scores[chosen[-1]]]
        out[b, :2048] = chosen
        if wrong and len(ties) > 1024:
            out[b, 2048 - len(ties) + 1024 :] = -1
    return {"topk_indices": out}
