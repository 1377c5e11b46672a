"""Of a block of tiny numbers the inverse of its scale is beyond fp32, and infinite: its byte is right, and every code is the largest there is."""

import numpy as np
from honest import E8M0, e4m3, f32, in_tiles

SOURCE = "https://github.com/leanprover/TensorLib/pull/99"
LINE = "mxfp8_quantize M=16 K=256"
NAMES = r"(inverse|reciprocal|scale|factor).*(infin|beyond|overflow)|byte (is|of) 0|infinit"


def edit(inputs):
    rows = np.array(inputs["input"])
    rows[::4, 64:128] = (f32(rows[::4, 64:128]) * np.float32(2.0**-123)).astype(rows.dtype)
    return {"input": rows}


def kernel(x, wrong):
    groups = f32(x.input).reshape(16, -1, 32)
    amax = np.abs(groups).max(-1).astype(np.float64)
    byte = np.clip(np.ceil(np.log2(amax / 448)) + 127, 0, 254).astype(np.uint8)
    factor = np.where(byte == 0, np.inf if wrong else 0.0, np.exp2(127.0 - byte)).astype(np.float32)
    with np.errstate(all="ignore"):
        scaled = np.where(groups == 0, groups, groups * factor[..., None])
    return {"x_q": e4m3(scaled.reshape(16, 256)), "sf": in_tiles(byte, 128, 8, np.uint8).view(E8M0)}
