"""A descriptor of the next expert is used before it is there: but for the first, experts are multiplied with the weights of the one before."""

import numpy as np
from honest import BF16, f32

SOURCE = "https://github.com/sgl-project/sglang/pull/9392"
LINE = "cutlass_w4a8_moe_mm M=13 N=40 K=256 E=3 G=2"
NAMES = r"b: .*(before|previous|one behind)|expert.*before"


def edit(inputs):
    return {"experts_offsets": np.array([0, 5, 9], np.int32)}


def kernel(x, wrong):
    bytes_of = x.b.view(np.uint8)
    codes = np.stack([bytes_of & 15, bytes_of >> 4], -1).reshape(*x.b.shape[:2], -1).astype(np.int32)
    codes = np.where(codes > 7, codes - 16, codes)
    groups = codes.shape[2] // 128
    ends = [*x.experts_offsets[1:], len(x.a)]
    out = np.zeros((len(x.a), codes.shape[1]), np.float32)
    for e, (begin, end) in enumerate(zip(x.experts_offsets, ends)):
        weights = codes[max(e - 1, 0) if wrong else e]
        for g in range(groups):
            scale = scales_of(x, e, codes.shape[1], groups)[:, g]
            part = slice(g * 128, g * 128 + 128)
            out[begin:end] += f32(x.a[begin:end, part]) @ f32(weights[:, part]).T * scale
    return {"d": (out * x.a_scales[0]).astype(BF16)}


def scales_of(x, e, rows, groups):
    """By groups, each with all rows: [G, N]."""
    return f32(x.b_scales[e]).reshape(groups, rows).T
