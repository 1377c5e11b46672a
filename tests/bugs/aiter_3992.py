"""Four of seven ties of e2m1 go to the odd code above."""

import numpy as np
from honest import E8M0, f32, fp4_codes, in_tiles

SOURCE = "https://github.com/ROCm/aiter/pull/3992"
LINE = "mxfp4_quantize M=33 K=256 --dist ties"
NAMES = r"ties"


def kernel(x, wrong):
    groups = f32(x.a).reshape(len(x.a), -1, 32)
    amax = np.abs(groups).max(-1) * np.float32(1 / 6)
    with np.errstate(all="ignore"):
        byte = np.clip(np.ceil(np.log2(amax.astype(np.float64))) + 127, 0, 254).astype(np.uint8)
    scaled = (groups * np.exp2(127.0 - byte)[..., None].astype(np.float32)).reshape(x.a.shape)
    if wrong:
        tie = np.isin(np.abs(scaled), np.array([0.25, 1.25, 2.5, 5], np.float32))
        scaled = np.where(tie, scaled * np.float32(1.001), scaled)
    rows, columns = -(-len(groups) // 128) * 128, -(-groups.shape[1] // 4) * 4
    return {"x_q": fp4_codes(scaled), "sf": in_tiles(byte, rows, columns, np.uint8).view(E8M0)}
