"""The standard deviation is the variance squared, not its root."""

import numpy as np
from honest import BF16, f32

SOURCE = "https://github.com/131250208/TPlinker-joint-extraction/issues/37"
LINE = "layernorm T=12 D=384"
NAMES = r"variance.*(square|root|power)|(square|root).*variance|power"


def kernel(x, wrong):
    a = f32(x.input)
    centred = a - a.mean(-1, keepdims=True, dtype=np.float32)
    variance = (centred * centred).mean(-1, keepdims=True, dtype=np.float32) + np.float32(1e-6)
    deviation = variance**2 if wrong else np.sqrt(variance)
    return {"out": (centred / deviation * x.gemma + x.beta).astype(BF16)}
