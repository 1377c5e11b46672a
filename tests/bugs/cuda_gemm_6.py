"""Only tiles of the last row or column look at K's end: the others go on with what lies behind, the next row's first elements."""

import numpy as np
from honest import BF16, f32

SOURCE = "https://github.com/Cjkkkk/CUDA_gemm/issues/6"
LINE = "linear T=48 N=96 K=100"
NAMES = r"(next|following) row|beyond|behind|read on|further"


def kernel(x, wrong):
    a, b = f32(x.input), f32(x.weight)
    out = a @ b.T
    if wrong:
        out[:32, :64] += (a[1:33, :4] @ b[1:65, :4].T)
    return {"output": out.astype(BF16)}
