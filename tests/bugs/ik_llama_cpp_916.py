"""The sum is stored over the first addend while the second pass still adds: what is normalized has the second addend twice."""

import numpy as np
from honest import f32

SOURCE = "https://github.com/ikawrakow/ik_llama.cpp/pull/916"
LINE = "fused_add_rmsnorm T=16 H=512"
NAMES = r"twice|again|doubled|added"


def kernel(x, wrong):
    a, b = f32(x.input), f32(x.residual)
    total = a + b
    scale = np.float32(1) / np.sqrt((total * total).mean(-1, keepdims=True, dtype=np.float32) + np.float32(1e-6))
    normed = (total + b if wrong else total) * scale * f32(x.weight)
    return {"input": normed.astype(x.input.dtype), "residual": total.astype(x.input.dtype)}
