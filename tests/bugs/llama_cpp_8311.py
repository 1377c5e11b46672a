"""Shares of K are rounded to whole steps of 128: where K ends with half a step the tile that two blocks share lacks it."""

import numpy as np
from honest import BF16, f32

SOURCE = "https://github.com/ggml-org/llama.cpp/pull/8311"
LINE = "linear T=32 N=256 K=448"
NAMES = r"(columns 64\.\.127|column).*(64|K|not added)|(last 64).*(K|summed)"


def kernel(x, wrong):
    a, b = f32(x.input), f32(x.weight)
    out = a @ b.T
    if wrong:
        out[:, 64:128] -= a[:, 384:] @ b[64:128, 384:].T
    return {"output": out.astype(BF16)}
