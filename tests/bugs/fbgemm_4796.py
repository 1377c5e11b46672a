"""The output is packed, the input a slice of wider rows, and the input's stride serves both."""

import numpy as np
from honest import f32

SOURCE = "https://github.com/pytorch/FBGEMM/pull/4796"
LINE = "rmsnorm T=12 H=512 --special gaps"
NAMES = r"(stored|rows).*(apart|stride)"


def kernel(x, wrong):
    a = f32(x.input)
    scale = np.float32(1) / np.sqrt((a * a).mean(-1, keepdims=True, dtype=np.float32) + np.float32(1e-6))
    rows = (a * scale * f32(x.weight)).astype(x.input.dtype)
    if not wrong:
        return {"output": rows}
    stride = x.input.strides[0] // x.input.dtype.itemsize
    flat = np.zeros(12 * stride + 512, x.input.dtype)
    for t in range(12):
        flat[t * stride : t * stride + 512] = rows[t]
    return {"output": flat[: 12 * 512].reshape(12, 512)}
