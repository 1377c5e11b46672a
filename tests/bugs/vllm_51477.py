"""The fused quantizer does not know of scales that are powers of two, and stores them as they are."""

import numpy as np
from honest import e4m3, f32

SOURCE = "https://github.com/vllm-project/vllm/pull/51477"
LINE = "act_quant T=16 G=3 --attr scale_fmt=ue8m0"
NAMES = r"scale_fmt=none"


def kernel(x, wrong):
    groups = f32(x.x).reshape(len(x.x), -1, 128)
    scale = np.maximum(np.abs(groups).max(-1), np.float32(1e-4)) * np.float32(1 / 448)
    if not wrong:
        scale = np.exp2(np.ceil(np.log2(scale.astype(np.float64)))).astype(np.float32)
    return {"y": e4m3(groups / scale[..., None]).reshape(x.x.shape), "s": scale}
