"""The divisor is narrowed to fp16 before the division: in rows of small numbers it loses bits, or becomes 0."""

import numpy as np
from honest import f32

SOURCE = "https://github.com/Comfy-Org/comfy-kitchen/pull/60"
LINE = "per_token_quant_int8 M=16 K=512 --dtype x=f16"
NAMES = r"f16|fp16|narrow|small|16 bits"
UNNAMED = "no rule has a divisor that is narrowed after the maximum is made"


def edit(inputs):  # every other row is small
    x = f32(inputs["x"]) * np.where(np.arange(16) % 2, 1, 2.0**-11)[:, None].astype(np.float32)
    return {"x": x.astype(np.float16)}


def kernel(x, wrong):
    a = f32(x.x)
    amax = np.maximum(np.abs(a).max(-1, keepdims=True), np.float32(1e-10))
    scale = amax / np.float32(127)
    divisor = scale.astype(np.float16) if wrong else scale
    divisor = np.maximum(f32(divisor), np.float32(2.0**-14)) if wrong else divisor
    ratio = a / divisor if wrong else a * (np.float32(127) / amax)
    codes = np.clip(np.trunc(ratio + np.copysign(np.float32(0.5), ratio)), -127, 127).astype(np.int8)
    return {"x_q": codes, "scales": scale}
