"""Block scales without a leading bit, e4m3's denormals, become zero when their exponents are widened."""

import ml_dtypes
import numpy as np
from honest import E4M3, cutlass_scaled_fp4_mm, f32, with_lines

SOURCE = "https://github.com/vllm-project/vllm/pull/34577"
LINE = "cutlass_scaled_fp4_mm M=9 N=64 K=256"
NAMES = r"(block_scale_b.*(denormal|small|0\.0|zero|flush))|denormal"


def edit(inputs):
    scales = f32(inputs["block_scale_b"]).reshape(-1)
    scales[3::5] = np.float32(0.0078125)
    scales[4::11] = np.float32(0.00390625)
    return {"block_scale_b": scales.reshape(inputs["block_scale_b"].shape).astype(E4M3)}


def kernel(x, wrong):
    if wrong:
        scales = f32(x.block_scale_b)
        x = with_lines(x, block_scale_b=np.where(np.abs(scales) < 2.0**-6, 0, scales).astype(E4M3))
    return cutlass_scaled_fp4_mm(x)
