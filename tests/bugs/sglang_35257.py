"""Of the scores that share the threshold's leading bits the first 2048 alone are looked at, whatever they are."""

import numpy as np
from honest import f32

SOURCE = "https://github.com/sgl-project/sglang/issues/35257"
LINE = "fast_topk_v2 B=2 L=40000 --dist uniform"
NAMES = r"candidates"

UNNAMED = "which candidates a kernel has room for is its own"


def kernel(x, wrong):
    out = np.full((len(x.lengths), 2048), -1, np.int32)
    for b, n in enumerate(x.lengths):
        scores = f32(x.score[b, : max(n, 0)])
        if n <= 2048:
            out[b, : max(n, 0)] = np.arange(max(n, 0))
            continue
        order = np.argsort(-scores, kind="stable")
        chosen = order[:2048]
        if wrong:
            bits = scores.astype(np.float16).view(np.uint16).astype(np.int32)
            coarse = np.where(bits & 0x8000, ~bits & 0xFFFF, bits | 0x8000) >> 8
            threshold = coarse[chosen[-1]]
            above = np.flatnonzero(coarse > threshold)
            ties = np.flatnonzero(coarse == threshold)[:2048]
            rest = ties[np.argsort(-scores[ties], kind="stable")][: 2048 - len(above)]
            chosen = np.concatenate([above, rest, np.full(2048 - len(above) - len(rest), -1)])
        out[b] = chosen
    return {"topk_indices": out}
