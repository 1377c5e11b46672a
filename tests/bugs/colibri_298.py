"""Scales of groups are looked for as if a row had one: row m has the m-th of them all for its whole length."""

import numpy as np
from honest import fp8_gemm_nt

SOURCE = "https://github.com/JustVugg/colibri/pull/298"
LINE = "fp8_gemm_nt M=16 N=128 K=512"
NAMES = r"sfa.*(one|row|stride|number|flat|group)"


def kernel(x, wrong):
    scales = np.ascontiguousarray(x.sfa)
    return fp8_gemm_nt(x, sfa=np.repeat(scales.reshape(-1)[:16, None], 4, 1) if wrong else scales)
