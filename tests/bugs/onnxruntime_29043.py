"""Squares are added up in fp16, where they exceed 65504: the rows become zeros."""

import numpy as np
from honest import rmsnorm

SOURCE = "https://github.com/microsoft/onnxruntime/pull/29043"
LINE = "rmsnorm T=8 H=256 --dtype input=f16"
NAMES = r"fp16|f16|65504|overflow|16 bits"


def edit(inputs):  # every second row is large
    scale = np.where(np.arange(8) % 2 == 1, 300, 1)[:, None]
    return {"input": (inputs["input"].astype(np.float32) * scale).astype(np.float16)}


def kernel(x, wrong):
    def in_fp16(a):
        total = np.zeros((len(a), 1), np.float16)
        with np.errstate(over="ignore"):
            for c in range(a.shape[1]):
                total = total + a[:, c : c + 1].astype(np.float16) ** 2
        return total.astype(np.float32) / np.float32(a.shape[1])

    return rmsnorm(x, 1e-6, mean_square=in_fp16) if wrong else rmsnorm(x, 1e-6)
