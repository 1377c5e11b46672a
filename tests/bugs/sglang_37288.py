"""A warp that lags reads the next chunk's factors: rows 16 to 31 of each block but the last have the scales of the block behind."""

import numpy as np
from honest import BF16, by_blocks

SOURCE = "https://github.com/sgl-project/sglang/pull/37288"
LINE = "fp8_gemm_nt M=32 N=64 K=512"
NAMES = r"sfa.*(next|behind|block k \+ 1|shift).*(row|16)|(row|16).*sfa.*(next|behind|shift|k \+ 1)"


def kernel(x, wrong):
    scales = np.array(x.sfa)
    if wrong:
        scales[16:32, :-1] = np.asarray(x.sfa)[16:32, 1:]
    return {"d": by_blocks(x.a, scales, x.b, x.sfb).astype(BF16)}
