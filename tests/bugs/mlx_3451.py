"""A rank's own chunk is filled anew when it was sent, not when it was added: where it was late the chunk two further on is added."""

import numpy as np
from honest import f32

SOURCE = "https://github.com/ml-explore/mlx/pull/3451"
LINE = "all_reduce R=4 T=4 H=1024 --attr algorithm=any"
NAMES = r"inp.*(further|at i|looked|tile|chunk|stands)"


def kernel(x, wrong):
    terms = f32(x.inp).copy()
    if wrong:  # chunks of 128, two buffers
        chunks = f32(x.inp)[0].reshape(4, 8, 128)
        late = chunks.copy()
        late[:, :6] = chunks[:, 2:]
        terms[0] = late.reshape(4, 1024)
    return {"out": terms.sum(0, dtype=np.float32).astype(x.inp.dtype)}
