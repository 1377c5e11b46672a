"""The logarithm of a row's sum is taken twice."""

import numpy as np
from honest import f32

SOURCE = "https://github.com/PaddlePaddle/Paddle/pull/53654"
LINE = "log_softmax T=6 N=1536 --dtype input=f32"
NAMES = r"log(arithm)?.*(twice|once more|log)"


def kernel(x, wrong):
    d = f32(x.input) - f32(x.input).max(-1, keepdims=True)
    log = np.log(np.exp(d).sum(-1, keepdims=True, dtype=np.float32))
    return {"output": d - (np.log(log) if wrong else log)}
