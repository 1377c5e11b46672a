"""Of an all-reduce in two steps the parts are put back from the rank's own on: but for rank 0 they lie rotated."""

import numpy as np
from honest import f32

SOURCE = "https://github.com/NVIDIA/FasterTransformer/pull/672"
LINE = "all_reduce R=4 T=3 H=1024 --attr algorithm=any"
NAMES = r"parts.*(rotated|shifted)"


def kernel(x, wrong):
    total = f32(x.inp).sum(0, dtype=np.float32).astype(x.inp.dtype)
    if wrong:  # as rank 1 has it
        total = np.roll(total.reshape(4, -1), 1, axis=0).reshape(total.shape)
    return {"out": total}
