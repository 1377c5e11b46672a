"""Weights are the biased scores less the bias, which has taken the last bits of the scores with it."""

import numpy as np
from honest import f32, largest, sigmoid

SOURCE = "https://github.com/flashinfer-ai/flashinfer/pull/3875"
LINE = "kimi_k2_moe_fused_gate T=16 E=384 --attr topk=8"
NAMES = r"bias.*(off again|subtract|taken off|less)|(subtract|less).*bias"


def edit(inputs):
    return {"bias": np.array(inputs["bias"]) + np.float32(100)}


def kernel(x, wrong):
    scores = sigmoid(x.input_tensor)
    keys = scores + f32(x.bias)
    ids = largest(keys, x.topk)
    taken = np.take_along_axis(keys - f32(x.bias) if wrong else scores, ids, axis=-1)
    return {"topk_weights": taken / taken.sum(-1, keepdims=True, dtype=np.float32), "topk_ids": ids.astype(np.int32)}
