"""Of 576 rows in five blocks of scales each block is taken to have 116 rows, not 128."""

import numpy as np
from honest import BF16, f32, fp8_gemm_nt

SOURCE = "https://github.com/NVIDIA/TensorRT-LLM/pull/14793"
LINE = "fp8_gemm_nt M=4 N=576 K=256"
NAMES = r"116"


def kernel(x, wrong):
    if not wrong:
        return fp8_gemm_nt(x)
    rows = -(-len(x.b) // len(x.sfb))
    total = np.zeros((len(x.a), len(x.b)), np.float32)
    for k in range(x.sfb.shape[1]):
        part = f32(x.a[:, 128 * k : 128 * k + 128]) @ f32(x.b[:, 128 * k : 128 * k + 128]).T
        total += part * x.sfa[:, k : k + 1] * x.sfb[np.arange(len(x.b)) // rows, k]
    return {"d": total.astype(BF16)}
