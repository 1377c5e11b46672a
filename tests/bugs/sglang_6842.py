"""As many blocks are launched as whole ones fit: rows behind the last multiple of 16 are never written."""

import numpy as np
from honest import f32

SOURCE = "https://github.com/sgl-project/sglang/pull/6842"
LINE = "awq_dequantize K=72 N=64 G=2"
NAMES = r"rows 64\.\.71|last rows|last partial tile of 16 rows"


def kernel(x, wrong):
    order = np.array([0, 4, 1, 5, 2, 6, 3, 7])
    unpack = lambda words: (words[..., None].view(np.uint32) >> (4 * order)).astype(np.int32).reshape(len(words), -1) & 15
    codes, zeros = unpack(x.qweight), unpack(x.qzeros)
    group = len(codes) // len(zeros)
    out = (f32(codes - np.repeat(zeros, group, 0)) * f32(np.repeat(x.scales, group, 0))).astype(x.scales.dtype)
    if wrong:
        out[len(out) // 16 * 16 :] = 0
    return {"out": out}
