"""Sums are converted to fp16 before the global scale multiplies: they exceed 65504."""

import numpy as np
from honest import cutlass_scaled_fp4_mm, f32

SOURCE = "https://github.com/vllm-project/vllm/pull/37135"
LINE = "cutlass_scaled_fp4_mm M=16 N=32 K=256 --attr out_dtype=f16"
NAMES = r"before they are scaled"


def edit(inputs):
    louder = {name: np.minimum(f32(inputs[name]) * 64, 448).astype(inputs[name].dtype) for name in ("block_scale_a", "block_scale_b")}
    return {"alpha": np.full_like(inputs["alpha"], 2e-6), **louder}


def kernel(x, wrong):
    if not wrong:
        return cutlass_scaled_fp4_mm(x, dtype=np.float16)
    with np.errstate(all="ignore"):
        sums = f32(cutlass_scaled_fp4_mm(x, alpha=1, dtype=np.float16)["out"])
    return {"out": (sums * f32(x.alpha).reshape(-1)[0]).astype(np.float16)}
