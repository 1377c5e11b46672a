"""The map from slots to rows is written by rows and read by slots: it is its own inverse."""

import numpy as np
from honest import f32

SOURCE = "https://github.com/tile-ai/TileOPs/pull/640"
LINE = "apply_shuffle_mul_sum M=8 topk=4 R=32 D=96"
NAMES = r"permutation.*inverse|inverse"


def kernel(x, wrong):
    permutation = np.argsort(x.permutation) if wrong else x.permutation
    rows = f32(x.input[permutation]).reshape(8, 4, -1) * f32(x.factors).reshape(8, 4, 1)
    return {"output": rows.sum(1, dtype=np.float32).astype(x.input.dtype)}
