"""Scales and zero points are looked for as if groups had 128 rows, whatever their size."""

import numpy as np
from honest import f32

SOURCE = "https://github.com/mit-han-lab/llm-awq/issues/21"
LINE = "awq_dequantize K=384 N=64 G=6"
NAMES = r"scales, qzeros: along G .*groups were 2 times as large"


def kernel(x, wrong):
    place = [0, 4, 1, 5, 2, 6, 3, 7]
    unpack = lambda words: np.stack([words.view(np.uint32) >> 4 * p & 15 for p in place], -1).reshape(len(words), -1).astype(np.int32)
    codes, zeros = unpack(x.qweight), unpack(x.qzeros)
    group = np.arange(len(codes)) // (128 if wrong else len(codes) // len(zeros))
    return {"out": (f32(codes - zeros[group]) * f32(x.scales)[group]).astype(x.scales.dtype)}
