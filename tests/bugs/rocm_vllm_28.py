"""A block's last warp is not whole, and its part of the sum over K is lost in the shuffles."""

import numpy as np
from honest import BF16, f32

SOURCE = "https://github.com/ROCm/vllm/pull/28"
LINE = "linear T=1 N=64 K=1400"
NAMES = r"(K|last|columns|1400|1280|120).*(not added|dropped|cut|left out|warp|tile)"


def kernel(x, wrong):
    width = x.input.shape[1] // 256 * 256 if wrong else x.input.shape[1]
    return {"output": (f32(x.input)[:, :width] @ f32(x.weight)[:, :width].T).astype(BF16)}
