"""A split without keys has a maximum of minus infinity, and its factor is that less itself: requests shorter than the number of splits are NaN."""

import numpy as np
from honest import decode_attention

SOURCE = "https://github.com/pegainfer-project/pegainfer/pull/21"
LINE = "decode_attention_fwd B=12 N=4 Nk=2 S=90 n=240 D=64 --attr v_head_dim=64 --attr sm_scale=0.125"
NAMES = r"NaN.*(length|keys|kv_indptr|3 or less|fewer|short)|(length|kv_indptr).*NaN"


def edit(inputs):
    return {"kv_indptr": np.array([0, 30, 32, 60, 61, 64, 100, 105, 135, 160, 190, 220, 240], inputs["kv_indptr"].dtype)}


def kernel(x, wrong):
    out = decode_attention(x)["o"]
    if wrong:
        out[np.diff(x.kv_indptr) < 4] = np.nan
    return {"o": out}
