"""The sum of squares is taken at the input's stride, what it multiplies is read as if rows were packed."""

import numpy as np
from honest import f32, packed

SOURCE = "https://github.com/ModelTC/LightLLM/issues/1467"
LINE = "rmsnorm T=12 H=512 --special gaps"
NAMES = r"input.*(packed|stride)"

UNNAMED = "one of two uses of an operand is not told from the other"


def kernel(x, wrong):
    a = f32(x.input)
    scale = np.float32(1) / np.sqrt((a * a).mean(-1, keepdims=True, dtype=np.float32) + np.float32(getattr(x, "eps", 1e-6)))
    read = np.nan_to_num(f32(packed(x.input))) if wrong else a
    return {"output": (read * scale * f32(x.weight)).astype(x.input.dtype)}
