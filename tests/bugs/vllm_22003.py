"""One side's log-sum-exps lie head by head, and are read token by token as if they were packed."""

import numpy as np
from honest import merge_state, with_lines

SOURCE = "https://github.com/vllm-project/vllm/pull/22003"
LINE = "merge_state_v2 T=12 N=4 D=64"
NAMES = r"s_b.*(column by column|columns|transposed|head by head)"


def kernel(x, wrong):
    s_b = np.ascontiguousarray(x.s_b.T).reshape(x.s_b.shape) if wrong else x.s_b
    return merge_state(with_lines(x, s_b=s_b), base_2=False)
