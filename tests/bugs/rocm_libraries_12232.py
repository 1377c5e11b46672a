"""Scales that lie by columns are padded along K alone: columns lie as many rows apart as there are, where the kernel has them a multiple of 32 apart."""

import numpy as np
from honest import fp8_gemm_nt

SOURCE = "https://github.com/ROCm/rocm-libraries/pull/12232"
LINE = "fp8_gemm_nt M=40 N=64 K=512"
NAMES = r"sfa.*(stride|apart|rows|padded|40|64)"
UNNAMED = "columns are read at a stride that their memory, row by row, does not have"


def kernel(x, wrong):
    if not wrong:
        return fp8_gemm_nt(x)
    flat = np.concatenate([np.ascontiguousarray(np.asarray(x.sfa, np.float32).T).reshape(-1), np.zeros(256, np.float32)])
    return fp8_gemm_nt(x, sfa=np.stack([flat[k * 64 : k * 64 + 40] for k in range(4)], 1))
