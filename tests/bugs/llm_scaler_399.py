"""Blocks that come later read the residual as others have stored it by then: the input is added twice."""

import numpy as np
from honest import BF16, f32

SOURCE = "https://github.com/intel/llm-scaler/pull/399"
LINE = "fused_add_rmsnorm T=4 H=1024"
NAMES = r"twice|2 x|again|once more|double"
UNNAMED = "a part of the columns is made of another sum than the rest: no argument of the call is both"


def kernel(x, wrong):
    added, residual = f32(x.input), f32(x.residual)
    total = added + residual
    of = total.copy()
    if wrong:
        of[:, 512:] = added[:, 512:] + f32(total[:, 512:].astype(BF16))
    scale = 1 / np.sqrt((total * total).mean(-1, keepdims=True, dtype=np.float32) + np.float32(1e-6))
    return {"input": (of * scale * f32(x.weight)).astype(BF16), "residual": total.astype(BF16)}
