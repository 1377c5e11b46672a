"""Keys are shared out to splits, and the split's number is never used: each has the first one's keys."""

import numpy as np
from honest import decode_attention, with_lines

SOURCE = "https://github.com/tile-ai/tilelang/pull/2010"
LINE = "decode_attention_fwd B=3 N=4 Nk=2 S=90 n=140 D=72 --attr v_head_dim=40 --attr sm_scale=0.1"
NAMES = r"num_kv_splits|splits?"


def edit(inputs):
    return {"num_kv_splits": inputs["num_kv_splits"] * 0 + 4, "kv_indptr": np.array([0, 37, 90, 140], np.int32)}


def kernel(x, wrong):
    return decode_attention(x, seen=lambda n: -(-n // 4) if wrong else n)
