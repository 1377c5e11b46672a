"""Two sides without keys give NaN in the Triton kernel alone."""

import numpy as np
from honest import merge_state

SOURCE = "https://github.com/vllm-project/vllm/pull/39148"
LINE = "merge_state_v2 T=16 N=4 D=128 --dialect flashinfer"
NAMES = r"both_empty=nan"


def edit(inputs):
    s_a, s_b = inputs["s_a"].copy(), inputs["s_b"].copy()
    s_a[::5], s_b[::5] = -np.inf, -np.inf
    return {"s_a": s_a, "s_b": s_b}


def kernel(x, wrong):
    return merge_state(x, base_2=False, empty=not wrong)
