"""Log-sum-exps of queries without keys are finite, so that a merge takes what was never computed for an answer."""

import numpy as np
from honest import prefill

SOURCE = "https://github.com/vllm-project/vllm/pull/49294"
LINE = "batch_prefill_with_ragged_kv_cache Tq=24 Tk=16 N=4 Nk=2 D=64 Dv=64 B=5 --attr sm_scale=0.125 --attr return_lse=true"
NAMES = r"no keys|without keys"


def edit(inputs):
    return {"kv_indptr": np.array([0, 6, 6, 12, 12, 16], np.int32)}


def kernel(x, wrong):
    out = prefill(x)
    if wrong:
        out["lse"][np.isneginf(out["lse"])] = 0
    return out
