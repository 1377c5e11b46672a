"""A group's lanes lie in two subgroups, and each reduces its own: the second half of a group is quantized with its own maximum, the first half's scale is stored."""

import numpy as np
from honest import e4m3, f32

SOURCE = "https://github.com/vllm-project/vllm-xpu-kernels/pull/521"
LINE = "sgl_per_token_group_quant_8bit M=8 K=1024 --attr group_size=512"
NAMES = r"maxim.*half|half.*maxim|half of each group"
UNNAMED = "scales are of one half of a group, codes of both: no call of the op has both"


def kernel(x, wrong):
    parts = f32(x.input).reshape(len(x.input), -1, 2, 256)
    amax = np.maximum(np.abs(parts).max(-1), np.float32(1e-10))
    if not wrong:
        amax[:] = amax.max(-1, keepdims=True)
    scale = amax * (np.float32(1) / np.float32(448))
    return {"output_q": e4m3(parts / scale[..., None]).reshape(x.input.shape), "output_s": scale[..., 0].copy()}
