"""The maximum of a whole tensor is taken in several rounds, and the later ones look at the first tile of 8192 alone."""

import numpy as np
from honest import e4m3, f32

SOURCE = "https://github.com/AMD-AGI/Primus-Turbo/pull/306"
LINE = "sgl_per_tensor_quant_fp8 T=24 H=512"
NAMES = r"8192|maximum.*(some|first|not.*all)"


def edit(inputs):  # the largest lies behind the first tile
    x = np.array(inputs["input"])
    x[20, 100] = 12.5
    return {"input": x, "output_s": np.zeros(1, np.float32)}


def kernel(x, wrong):
    values = f32(x.input)
    amax = np.abs(values.reshape(-1)[: 8192 if wrong else None]).max()
    scale = np.maximum(amax / np.float32(448), x.output_s)
    return {"output_q": e4m3(values / scale), "output_s": scale.astype(np.float32)}
