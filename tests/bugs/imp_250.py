"""Codes are made with the exact scale, and a power of two is stored as theirs."""

import numpy as np
from honest import E8M0, f32, fp4_codes, in_tiles

SOURCE = "https://github.com/kekzl/imp/pull/250"
LINE = "mxfp4_quantize M=9 K=256"
NAMES = r"scale.*(before|exact|not rounded|unrounded|round)"


def kernel(x, wrong):
    groups = f32(x.a).reshape(len(x.a), -1, 32)
    exact = np.abs(groups).max(-1) * np.float32(1 / 6)
    byte = np.clip(np.ceil(np.log2(exact.astype(np.float64))) + 127, 0, 254).astype(np.uint8)
    factor = 1 / exact if wrong else np.exp2(127.0 - byte).astype(np.float32)
    rows, columns = -(-len(groups) // 128) * 128, -(-groups.shape[1] // 4) * 4
    return {"x_q": fp4_codes((groups * factor[..., None]).reshape(x.a.shape)), "sf": in_tiles(byte, rows, columns, np.uint8).view(E8M0)}
