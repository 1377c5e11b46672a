"""Lanes of a group do not wait for each other: the maximum misses what the upper half holds."""

import numpy as np
from honest import F32, e4m3, f32

SOURCE = "https://github.com/vllm-project/vllm/pull/54111"
LINE = "sgl_per_token_group_quant_fp8 M=16 K=512 --attr group_size=64"
NAMES = r"half|part of (each|the) group|first 32"


def kernel(x, wrong):
    groups = f32(x.input).reshape(len(x.input), -1, 64)
    amax = np.maximum(np.abs(groups[..., :32] if wrong else groups).max(-1), F32(1e-10))
    scale = amax / F32(448)
    return {"output_q": e4m3(groups / scale[..., None]).reshape(x.input.shape), "output_s": scale}
