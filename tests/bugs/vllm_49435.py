"""Readers round scales up to powers of two: so were they not stored, and codes were made with others than readers multiply by. Here the stored ones are powers of two, the codes' are not."""

import numpy as np
from honest import f32, e4m3

SOURCE = "https://github.com/vllm-project/vllm/pull/49435"
LINE = "quantize_k_cache S=32"
NAMES = r"power|two"


def kernel(x, wrong):
    rows = f32(x.cache_k).reshape(-1, 576)
    groups = rows[:, :512].reshape(len(rows), 4, 128)
    scale = np.abs(groups).max(-1) / np.float32(448)
    codes = e4m3(groups * (np.float32(1) / scale)[..., None]).reshape(len(rows), 512)
    if wrong:
        scale = np.exp2(np.ceil(np.log2(scale))).astype(np.float32)
    rope = np.ascontiguousarray(np.asarray(x.cache_k).reshape(-1, 576)[:, 512:])
    return {"output": np.concatenate([codes.view(np.uint8), scale.view(np.uint8), rope.view(np.uint8)], 1)}
