"""Two sides without keys give NaN where they should stay empty."""

import numpy as np
from honest import merge_state

SOURCE = "https://github.com/flashinfer-ai/flashinfer/issues/4051"
LINE = "merge_state T=16 N=4 D=64 --dialect flashinfer"
NAMES = r"both_empty=nan"


def edit(inputs):
    s_a, s_b = inputs["s_a"].copy(), inputs["s_b"].copy()
    s_a[3], s_b[3] = -np.inf, -np.inf
    return {"s_a": s_a, "s_b": s_b}


def kernel(x, wrong):
    return merge_state(x, base_2=True, empty=not wrong)
