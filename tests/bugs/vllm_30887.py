"""Values of keys that the window hides are multiplied with weights of 0, stale as they are: NaN stays NaN."""

import numpy as np
from honest import extend_attention

SOURCE = "https://github.com/vllm-project/vllm/pull/30887"
LINE = "extend_attention_fwd T=9 N=4 Nk=2 D=64 Dv=64 B=2 S=60 n=50 --attr sliding_window_size=9 --attr sm_scale=0.125"
NAMES = r"hidden-tokens-show"

KNOWN_DEFECT = "hidden-tokens-show"


def edit(inputs):
    values = np.array(inputs["v_buffer"])
    values[np.asarray(inputs["kv_indices"])[3:6]] = np.nan
    return {"v_buffer": values}


def kernel(x, wrong):
    out = extend_attention(x, x.sliding_window_size)
    if wrong:
        out["o_extend"][x.qo_indptr[0] : x.qo_indptr[1]] = np.nan
    return out
