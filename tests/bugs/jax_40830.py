"""The other ranks have overwritten their own parts before rank 0 has read them: the end of its part is the sum of what was there."""

import numpy as np
from honest import f32

SOURCE = "https://github.com/jax-ml/jax/issues/40830"
LINE = "reduce_scatter_tensor R=4 T=4 H=256 --dtype input=f32"
NAMES = r"rank 0|first (rank|part)|part 0"
UNNAMED = "what a buffer held before it was read is not in the inputs"


def kernel(x, wrong):
    terms = f32(x.input).reshape(4, 4, -1)
    out = terms.sum(0, dtype=np.float32)
    if wrong:  # rank 1's buffer holds its result at its begin
        late = terms[:, 0, 600:].copy()
        late[1] = out[1, 600:]
        out[0, 600:] = late.sum(0, dtype=np.float32)
    return {"output": out.reshape(4, 4, 256)}
