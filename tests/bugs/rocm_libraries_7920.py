"""The weight's scales move on with every tile of 32 along K, not with every block of 128."""

import numpy as np
from honest import BF16, f32, fp8_blockwise_scaled_mm

SOURCE = "https://github.com/ROCm/rocm-libraries/pull/7920"
LINE = "fp8_blockwise_scaled_mm M=24 N=256 K=512"
NAMES = r"scales_b.*(4|32|quarter)"


def kernel(x, wrong):
    if not wrong:
        return fp8_blockwise_scaled_mm(x)
    a, b, sa, sb = f32(x.mat_a), f32(x.mat_b), f32(x.scales_a), np.ascontiguousarray(f32(x.scales_b).T)
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for tile in range(16):
        k = slice(tile * 32, tile * 32 + 32)
        at = np.minimum(np.arange(2) * 4 + tile, sb.size - 1)
        total += a[:, k] @ b[k] * sa[:, tile // 4][:, None] * np.repeat(sb.reshape(-1)[at], 128)[None]
    return {"out": total.astype(BF16)}
