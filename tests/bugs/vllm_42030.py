"""A shard begins in the middle of a group, and groups are counted from the shard's first row: each half of a group but the first has the scale of the one behind."""

import numpy as np
from honest import f32

SOURCE = "https://github.com/vllm-project/vllm/pull/42030"
LINE = "awq_dequantize K=512 N=64 G=4"
NAMES = r"scales.*qzeros.*(shift|64|half|begin|before|behind|next)|(half|64).*(group|scale)"


def kernel(x, wrong):
    order = np.array([0, 4, 1, 5, 2, 6, 3, 7])
    unpack = lambda w: ((w.view(np.uint32)[..., None] >> (4 * order).astype(np.uint32)) & 15).reshape(len(w), -1).astype(np.float32)
    group = np.minimum((np.arange(512) + (64 if wrong else 0)) // 128, 3)
    return {"out": ((unpack(x.qweight) - unpack(x.qzeros)[group]) * f32(x.scales)[group]).astype(x.scales.dtype)}
