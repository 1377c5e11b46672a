"""Scales of a cache are made for a largest code of 448 on a machine whose codes end at half of it: here the other way round, scales twice as large."""

import numpy as np
from honest import E4M3, f32, e4m3

SOURCE = "https://github.com/vllm-project/vllm/pull/32976"
LINE = "quantize_k_cache S=24"
NAMES = r"224|largest code|twice|factor"


def kernel(x, wrong):
    return quantized(x, lambda amax: amax / np.float32(224 if wrong else 448))


def quantized(x, scale_of):
    rows = f32(x.cache_k).reshape(-1, 576)
    groups = rows[:, :512].reshape(len(rows), 4, 128)
    scale = scale_of(np.abs(groups).max(-1)).astype(np.float32)
    codes = e4m3(groups * (np.float32(1) / scale)[..., None]).reshape(len(rows), 512)
    rope = np.ascontiguousarray(np.asarray(x.cache_k).reshape(-1, 576)[:, 512:])
    return {"output": np.concatenate([codes.view(np.uint8), scale.view(np.uint8), rope.view(np.uint8)], 1)}
