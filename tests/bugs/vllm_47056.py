"""Slots are counted in blocks of 64 and taken apart in blocks of 16, as another view of the cache has them."""

import numpy as np
from honest import e4m3, f32

SOURCE = "https://github.com/vllm-project/vllm/pull/47056"
LINE = "fused_store_index_k_cache pages=6 n=5"
NAMES = r"page|page_size|16"


def edit(inputs):
    return {"out_cache_loc": np.array([3, 17, 40, 75, 90], np.int64)}


def kernel(x, wrong):
    cache = x.index_k_with_scale.copy()
    size = 16 if wrong else 64
    for t, slot in enumerate(x.out_cache_loc):
        key = f32(x.key[t])
        scale = np.maximum(np.float32(1e-4), np.abs(key).max()) / np.float32(448)
        page, at = slot // size, slot % size
        cache[page, at * 128 : at * 128 + 128] = e4m3(key * (1 / scale)).view(np.uint8)
        cache[page, 8192 + at * 4 : 8196 + at * 4] = np.frombuffer(scale.tobytes(), np.uint8)
    return {"index_k_with_scale": cache}
