"""One scale of a tile is used before it has arrived: one row of one tile of columns has the scale of the group before in a block of K."""

import numpy as np
from honest import f32, fp8_gemm_nt

SOURCE = "https://github.com/flashinfer-ai/flashinfer/pull/4409"
LINE = "fp8_gemm_nt M=16 N=256 K=512"
NAMES = r"one row: 5.*columns 128|row 5.*(128|columns)"


def kernel(x, wrong):
    out = fp8_gemm_nt(x)["d"]
    if wrong:
        stale = np.array(f32(x.sfa))
        stale[5, 2] = stale[5, 1]
        out[5, 128:] = fp8_gemm_nt(x, sfa=stale)["d"][5, 128:]
    return {"d": out}
