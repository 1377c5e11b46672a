"""Block scales whose rows are padded are read at the stride of the blocks that there are."""

import numpy as np
from honest import fp8_gemm_nt, packed

SOURCE = "https://github.com/FlashML-org/FreeToken/pull/399"
LINE = "fp8_gemm_nt M=8 N=384 K=640"
NAMES = r"sfb.*(packed|stride|padded|apart)"


def edit(inputs):
    wide = np.concatenate([inputs["sfb"], np.full((3, 3), 0.37, np.float32)], 1)
    return {"sfb": wide[:, :5]}


def kernel(x, wrong):
    return fp8_gemm_nt(x, sfb=packed(x.sfb) if wrong else x.sfb)
