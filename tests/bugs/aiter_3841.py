"""A query whose heads are not adjacent is read as if they were."""

import numpy as np
from honest import packed

SOURCE = "https://github.com/ROCm/aiter/pull/3841"
LINE = "concat_mla_absorb_q X=4 N=8"
NAMES = r"packed"


def edit(inputs):
    """[T, N, D] as a batched product leaves it: heads first."""
    return {"a": np.ascontiguousarray(inputs["a"].transpose(1, 0, 2)).transpose(1, 0, 2)}


def kernel(x, wrong):
    a = x.a
    if wrong:
        a = packed(a)
    return {"out": np.concatenate([a, x.b], -1)}
