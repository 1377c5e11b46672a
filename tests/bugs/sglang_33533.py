"""The reciprocal of a power of two is kept in f16, where it overflows: small groups are multiplied with infinity."""

import numpy as np
from honest import E4M3, f32

SOURCE = "https://github.com/sgl-project/sglang/pull/33533"
LINE = "sgl_per_token_group_quant_8bit M=8 K=512 --dtype input=f16 --attr scale_ue8m0=true --attr enable_v2=true"
NAMES = r"(f16|reciprocal|multipl|factor).*(overflow|infinit)|(overflow|infinit).*f16"


def edit(inputs):
    tokens = np.array(inputs["input"])
    tokens[::2, :256] = (f32(tokens[::2, :256]) * 2.0**-11).astype(np.float16)
    return {"input": tokens}


def kernel(x, wrong):
    groups = f32(x.input).reshape(len(x.input), -1, 128)
    power = np.ceil(np.log2(np.maximum(np.abs(groups).max(-1), np.float32(1e-10)).astype(np.float64) / 448))
    with np.errstate(all="ignore"):
        factor = f32(np.exp2(-power).astype(np.float16)) if wrong else f32(np.exp2(-power))
        value = groups * factor[..., None]
    codes = np.clip(np.where(np.isnan(value), -448, value), -448, 448).astype(E4M3)
    bytes_of = (power + 127).astype(np.uint8)
    return {"output_q": codes.reshape(x.input.shape), "output_s": bytes_of.view(np.int32)}
