"""Scores that are columns of wider, padded rows are read as if their rows were packed."""

import numpy as np
from honest import packed, with_lines
from sglang_12582 import kernel as honest

SOURCE = "https://github.com/vllm-project/vllm/pull/42169"
LINE = "fast_topk_transform_fused B=4 L=4000 R=2 W=4000"
NAMES = r"score.*packed"


def edit(inputs):
    wide = np.zeros((4, 4096), np.float32)
    wide[:, :4000] = inputs["score"]
    return {"score": wide[:, :4000]}


def kernel(x, wrong):
    x = with_lines(x, row_starts=[0] * len(x.lengths))
    return honest(with_lines(x, score=packed(x.score)) if wrong else x, False)
