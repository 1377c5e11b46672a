"""Logits of bf16 are read as fp32: two of them make one, and there are half as many."""

import numpy as np
from honest import f32, largest, sigmoid

SOURCE = "https://github.com/flashinfer-ai/flashinfer/pull/2889"
LINE = "topk_sigmoid T=16 E=64 topk=8 --dtype gating_output=bf16"
NAMES = r"gating_output.*(fp32|f32|32 bits|two)|(f32|fp32|other type).*gating_output"
UNNAMED = "behind the end of what was read lies anything"


def kernel(x, wrong):
    logits = f32(x.gating_output)
    if wrong:  # behind the end lies nothing but zeros
        halves = np.ascontiguousarray(x.gating_output).view(np.uint16).reshape(-1)
        read = halves.view(np.float32)
        logits = np.concatenate([read, np.zeros(logits.size - len(read), np.float32)]).reshape(logits.shape)
    with np.errstate(all="ignore"):
        scores = sigmoid(logits)
    ids = largest(scores, 8)
    return {"topk_weights": np.take_along_axis(scores, ids, -1), "topk_ids": ids.astype(np.int32)}
