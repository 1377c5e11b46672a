"""The cache's fp32 scales are read as powers of two."""

import numpy as np
from honest import BF16, E4M3, f32

SOURCE = "https://github.com/deepseek-ai/FlashMLA/issues/184"
LINE = "dequantize_k_cache S=64"
NAMES = r"powers of two"


def kernel(x, wrong):
    raw = x.quant_k_cache
    codes = f32(raw[:, :512].view(E4M3))
    scales = np.ascontiguousarray(raw[:, 512:528]).view(np.float32)
    if wrong:
        scales = (scales.view(np.uint32) & 0x7F800000).view(np.float32)
    out = np.concatenate([codes * np.repeat(scales, 128, 1), f32(np.ascontiguousarray(raw[:, 528:]).view(BF16))], 1)
    return {"output": out.astype(BF16)}
