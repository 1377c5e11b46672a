"""A product of the batch is stored one row behind the one before, whatever rows it has."""

import numpy as np
from honest import BF16, f32

SOURCE = "https://github.com/ml-explore/mlx/pull/1758"
LINE = "bmm L=4 M=3 N=48 K=96"
NAMES = r"(stored|written|out|rows?|L\b).*(stride|apart|distance|one row|batch)"


def kernel(x, wrong):
    product = (f32(x.mat1) @ f32(x.mat2)).astype(BF16)
    if not wrong:
        return {"out": product}
    out = np.zeros((12, 48), BF16)
    for b in range(4):
        out[b : b + 3] = product[b]
    return {"out": out.reshape(4, 3, 48)}
