"""A is a slice of wider rows, and is read as if it were packed."""

import numpy as np
from honest import BF16, f32, packed

SOURCE = "https://github.com/vllm-project/vllm/issues/55534"
LINE = "linear T=16 N=64 K=128"
NAMES = r"packed"


def edit(inputs):
    a = inputs["input"]
    return {"input": np.concatenate([a, a[::-1]], 1)[:, : a.shape[1]]}


def kernel(x, wrong):
    a = x.input
    if wrong:
        a = packed(a)
    return {"output": (f32(a) @ f32(x.weight).T).astype(BF16)}
