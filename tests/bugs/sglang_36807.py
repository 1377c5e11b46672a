"""Candidates that share the threshold's leading bits go into 4096 places, and those that come later are dropped whatever they are."""

import numpy as np
from honest import f32

SOURCE = "https://github.com/sgl-project/sglang/issues/36807"
LINE = "fast_topk_v2 B=2 L=9000"
NAMES = r"candidates|first \d+|threshold|positions? .*(4096|behind)"


def edit(inputs):
    rng = np.random.default_rng(3)
    return {"score": (1 + rng.random(inputs["score"].shape) / 64).astype(np.float32), "lengths": np.full_like(inputs["lengths"], 9000)}


def kernel(x, wrong):
    out = np.full((len(x.lengths), 2048), -1, np.int32)
    for b, n in enumerate(x.lengths):
        scores = f32(x.score[b, : min(n, 4096) if wrong else n])
        out[b] = np.argsort(-scores, kind="stable")[:2048]
    return {"topk_indices": out}
