"""A conversion to eight bits goes through sixteen: rounded twice."""

import numpy as np
from honest import e4m3, f32, through

SOURCE = "https://github.com/triton-lang/triton/pull/2583"
LINE = "sgl_per_token_quant_fp8 M=16 K=4096"
NAMES = r"round.*(twice|bf16|f16|16)|(twice|bf16|f16).*round"
UNNAMED = "numbers near a tie of both types are off by the kernel's own scale"


def kernel(x, wrong):
    scale = np.abs(f32(x.input)).max(-1, keepdims=True) / np.float32(448)
    scaled = f32(x.input) / scale
    return {"output_q": e4m3(through(np.float16, scaled) if wrong else scaled), "output_s": scale}
