"""eps is added to the root instead of under it."""

import numpy as np
from honest import f32

SOURCE = "https://github.com/allenai/OLMo/issues/281"
LINE = "rmsnorm T=16 H=256 --attr eps=0.02"
NAMES = r"eps.*(root|outside|after|added)"


def kernel(x, wrong):
    a = f32(x.input)
    mean = (a * a).mean(-1, keepdims=True, dtype=np.float32)
    root = np.sqrt(mean) + np.float32(x.eps) if wrong else np.sqrt(mean + np.float32(x.eps))
    return {"output": (a / root * f32(x.weight)).astype(x.input.dtype)}
