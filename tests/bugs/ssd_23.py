"""The pool is handed on without its table: a request's keys are taken one behind the other."""

import numpy as np
from honest import decode_attention, with_lines

SOURCE = "https://github.com/tanishqkumar/ssd/issues/23"
LINE = "decode_attention_fwd B=3 N=4 Nk=2 S=200 n=90 D=64 --attr v_head_dim=64 --attr sm_scale=0.125"
NAMES = r"kv_indices"


def kernel(x, wrong):
    return decode_attention(with_lines(x, kv_indices=np.arange(len(x.kv_indices))) if wrong else x)
