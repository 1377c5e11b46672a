"""A scale is rounded in a copy that nobody takes: codes are made with the scale itself, and what is stored is its exponent alone, cut."""

import numpy as np
from honest import E8M0, e4m3, f32, in_tiles, mxfp8_quantize

SOURCE = "https://github.com/inclusionAI/humming/pull/39"
LINE = "mxfp8_quantize M=16 K=256"
NAMES = r"(scale|exponent|power).*(before|not rounded|as it was|cut|trunc|down|below)"


def kernel(x, wrong):
    if not wrong:
        return mxfp8_quantize(x, lambda s: np.ceil(np.log2(s)))
    groups = f32(x.input).reshape(16, -1, 32)
    scale = np.abs(groups).max(-1) / np.float32(448)
    byte = (scale.view(np.uint32) >> 23).astype(np.uint8)
    return {"x_q": e4m3((groups / scale[..., None]).reshape(16, 256)), "sf": in_tiles(byte, 128, 8, np.uint8).view(E8M0)}
