"""Parts of K are added to the output in its own 16 bits, one after the other."""

import numpy as np
from honest import BF16, f32, through

SOURCE = "https://github.com/facebookexperimental/triton/pull/1067"
LINE = "linear T=24 N=48 K=512"
NAMES = r"rounded"


def kernel(x, wrong):
    total = np.zeros((24, 48), np.float32)
    for k in range(0, 512, 64):
        total = total + f32(x.input)[:, k : k + 64] @ f32(x.weight)[:, k : k + 64].T
        total = through(BF16, total) if wrong else total
    return {"output": total.astype(BF16)}
