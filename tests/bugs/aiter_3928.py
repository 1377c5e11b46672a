"""A replay sees the flag of the replay before: one rank's terms are those of the call before."""

import numpy as np
from honest import f32

SOURCE = "https://github.com/ROCm/aiter/pull/3928"
LINE = "all_reduce R=4 T=4 H=512 --attr algorithm=any"
NAMES = r"rank.*(1|other|not)|inp.*(1|left out|other)|earlier|stale"

UNNAMED = "what the call before summed is not in the inputs"


def kernel(x, wrong):
    terms = f32(x.inp).copy()
    if wrong:
        terms[1] = np.random.default_rng(5).standard_normal(terms[1].shape).astype(np.float32)
    return {"out": terms.sum(0, dtype=np.float32).astype(x.inp.dtype)}
