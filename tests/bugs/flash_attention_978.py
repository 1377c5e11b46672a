"""The log-sum-exp of a query without keys is +inf instead of -inf."""

import numpy as np
from honest import prefill

SOURCE = "https://github.com/Dao-AILab/flash-attention/pull/978"
LINE = "batch_prefill_with_ragged_kv_cache Tq=12 Tk=50 N=4 Nk=2 D=64 Dv=64 B=3 --attr sm_scale=0.125 --attr return_lse=true"
NAMES = r"lse.*inf|inf.*(empty|without keys|no keys)"
UNNAMED = "told as outputs that are not written, which leave anything open"


def edit(inputs):
    return {"qo_indptr": np.array([0, 5, 9, 12], inputs["qo_indptr"].dtype), "kv_indptr": np.array([0, 30, 30, 50], inputs["kv_indptr"].dtype)}


def kernel(x, wrong):
    out = prefill(x)
    if wrong:
        out["lse"][np.isneginf(out["lse"])] = np.inf
    return out
