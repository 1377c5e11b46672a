"""Exponents are packed four to a word, and a row that has no multiple of four groups is taken to have one: later rows' lie in others' words."""

import numpy as np
from honest import e4m3, f32

SOURCE = "https://github.com/sgl-project/sglang/pull/8449"
LINE = "sgl_per_token_group_quant_8bit M=12 K=640 --dist wide-exponent --attr scale_ue8m0=true --attr enable_v2=true"
NAMES = r"output_s.*(rows of|groups a row|padd|multiple of four|stride)"


def kernel(x, wrong):
    groups = f32(x.input).reshape(len(x.input), -1, 128)
    power = np.ceil(np.log2(np.maximum(np.abs(groups).max(-1), np.float32(1e-10)).astype(np.float64) / 448))
    stored = np.zeros((len(groups), 8), np.uint8)
    for i, byte in enumerate((power + 127).astype(np.uint8).reshape(-1)):
        stored[divmod(i, 8 if wrong else groups.shape[1])] = byte
    return {"output_q": e4m3(groups * np.exp2(-power)[..., None]).reshape(x.input.shape), "output_s": stored.view(np.int32)}
