"""Where a request's positions begin is not handed on: every row's position is its number."""

import numpy as np
from honest import rotary_embedding, with_lines

SOURCE = "https://github.com/flashinfer-ai/flashinfer/pull/847"
LINE = "apply_rope_with_cos_sin_cache_inplace T=16 P=128 R=64 Nq=4 Nk=1 --attr head_size=64 --attr is_neox=true"
NAMES = r"row's number|position"


def kernel(x, wrong):
    return rotary_embedding(with_lines(x, positions=np.arange(len(x.positions)) if wrong else x.positions), neox=True)
