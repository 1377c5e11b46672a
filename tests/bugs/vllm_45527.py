"""Places are counted in 32 bits without a sign: rows behind 2^32 elements go to the begin of the output, and their own places are never written."""

import numpy as np
from honest import merge_state

SOURCE = "https://github.com/vllm-project/vllm/pull/45527"
LINE = "merge_state_v2 T=262160 N=128 D=128 --window T=262140..262148"
NAMES = r"2\^32"


def kernel(x, wrong):
    out = merge_state(x, base_2=False)
    if wrong:  # of 262140..262148 those from 262144 on
        out["v_merged"][4:] = 0
    return out
