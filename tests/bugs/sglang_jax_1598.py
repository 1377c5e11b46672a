"""Quotients are cast to whole numbers as they are, toward zero, where they are to be rounded."""

import numpy as np
from honest import F32, f32

SOURCE = "https://github.com/sgl-project/sglang-jax/pull/1598"
LINE = "per_token_quant_int8 M=12 K=512"
NAMES = r"trunc|toward zero|cut"


def kernel(x, wrong):
    rows = f32(x.x)
    amax = np.maximum(np.abs(rows).max(-1, keepdims=True), F32(1e-10))
    quotient = rows * (F32(127) / amax)
    codes = np.trunc(quotient) if wrong else np.trunc(quotient + np.copysign(F32(0.5), quotient))
    return {"x_q": np.clip(codes, -127, 127).astype(np.int8), "scales": (amax * F32(1 / 127)).astype(np.float32)}
