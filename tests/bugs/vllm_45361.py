"""Quotients are cut toward zero by the conversion to int8 instead of rounded."""

import numpy as np
from honest import f32

SOURCE = "https://github.com/vllm-project/vllm/pull/45361"
LINE = "per_token_quant_int8 M=6 K=512"
NAMES = r"toward zero|truncat"


def kernel(x, wrong):
    a = f32(x.x)
    amax = np.maximum(np.abs(a).max(-1, keepdims=True), np.float32(1e-10))
    q = a * (np.float32(127) / amax)
    codes = np.trunc(q) if wrong else np.copysign(np.floor(np.abs(q) + np.float32(0.5)), q)
    return {"x_q": codes.astype(np.int8), "scales": amax * np.float32(1 / 127)}
