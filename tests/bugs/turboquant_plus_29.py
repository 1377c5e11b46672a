"""Groups are taken by fours, and what is left of them is dropped: of six of a row the last two are never written."""

import numpy as np
from honest import E4M3, f32, e4m3

SOURCE = "https://github.com/TheTom/turboquant_plus/issues/29"
LINE = "sgl_per_token_group_quant_8bit M=12 K=768"
NAMES = r"(columns 512|from 512|last|groups? 4|256)"
UNNAMED = "a part of the groups that is not written is seen, not why"


def kernel(x, wrong):
    groups = f32(x.input).reshape(12, 6, 128)
    scale = np.maximum(np.abs(groups).max(-1), np.float32(1e-10)) * np.float32(1 / 448)
    codes = e4m3(groups / scale[..., None])
    if wrong:
        codes[:, 4:], scale[:, 4:] = E4M3(0), 0
    return {"output_q": codes.reshape(12, 768), "output_s": scale}
