"""Four exponents are loaded at once, one for each 128 of K, and the first of them is used for all four."""

import numpy as np
from honest import BF16, f32

SOURCE = "https://github.com/mlc-ai/TIRx-kernels/pull/5"
LINE = "fp8_gemm_nt M=9 N=72 K=1280 --attr scale_ue8m0=true --attr gran_n=1 --dtype sfa=i32"
NAMES = r"four|first.*(scale|exponent|group)"


def kernel(x, wrong):
    total = np.zeros((len(x.a), len(x.b)), np.float32)
    exponent = lambda words, g: np.exp2((words[:, g // 4].view(np.uint32) >> 8 * (0 if wrong else g % 4) & 255).astype(np.float64) - 127)
    for g in range(x.a.shape[1] // 128):
        k = slice(g * 128, g * 128 + 128)
        scale = exponent(x.sfa, g)[:, None] * exponent(x.sfb, g)[None]
        total += f32(x.a[:, k]) @ f32(x.b[:, k]).T * scale.astype(np.float32)
    return {"d": total.astype(BF16)}
