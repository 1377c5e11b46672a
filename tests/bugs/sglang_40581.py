"""A cast in software takes codes from 256 on for the largest one, and ties away from zero."""

import numpy as np
from honest import E4M3, f32

SOURCE = "https://github.com/sgl-project/sglang/pull/40581"
LINE = "act_quant T=5 G=2"
NAMES = r"256"


def kernel(x, wrong):
    groups = f32(x.x).reshape(len(x.x), -1, 128)
    scale = np.maximum(np.abs(groups).max(-1), np.float32(1e-4)) * np.float32(1 / 448)
    value = np.clip(groups / scale[..., None], -448, 448)
    codes = value.astype(E4M3)
    if wrong:  # three bits behind the leading one, halves up; all of the top exponent is 448
        step = np.exp2(np.maximum(np.floor(np.log2(np.maximum(np.abs(value), 1e-30))), -6) - 3)
        rounded = np.copysign(np.floor(np.abs(value) / step + 0.5) * step, value)
        codes = np.where(np.abs(value) >= 256, np.copysign(448, value), np.clip(rounded, -448, 448)).astype(np.float32).astype(E4M3)
    return {"y": codes.reshape(x.x.shape), "s": scale}
