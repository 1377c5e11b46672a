"""Of eight numbers converted together those at odd places that become denormal codes are made of the number before them."""

import numpy as np
from honest import e4m3, f32

SOURCE = "https://github.com/pytorch/pytorch/pull/177870"
LINE = "sgl_per_token_quant_fp8 M=8 K=512 --dist wide-exponent"
NAMES = r"denormal|below the smallest normal|small"
UNNAMED = "which codes are made of the number before is the compiler's"


def kernel(x, wrong):
    a = f32(x.input)
    scale = np.abs(a).max(-1, keepdims=True) / np.float32(448)
    scaled = a / scale
    codes = e4m3(scaled)
    if wrong:
        before = np.roll(scaled, 1, -1)
        odd = (np.arange(a.shape[1]) % 2 == 1) & (np.abs(scaled) < 2.0**-6)
        codes = np.where(odd, e4m3(np.sign(scaled) * np.minimum(np.abs(before), np.float32(2.0**-6))).astype(np.float32), codes.astype(np.float32)).astype(codes.dtype)
    return {"output_q": codes, "output_s": scale}
