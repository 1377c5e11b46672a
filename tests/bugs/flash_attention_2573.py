"""Log-sum-exps of requests without keys go to columns that belong to other requests."""

import numpy as np
from honest import prefill

SOURCE = "https://github.com/Dao-AILab/flash-attention/pull/2573"
LINE = "batch_prefill_with_ragged_kv_cache Tq=12 Tk=24 N=4 Nk=2 D=64 Dv=64 B=4 --attr sm_scale=0.125 --attr return_lse=true"
NAMES = r"no keys|without keys"

UNNAMED = "whose numbers are overwritten follows from one kernel's offsets"


def edit(inputs):
    return {"qo_indptr": np.array([0, 3, 6, 9, 12], np.int32), "kv_indptr": np.array([0, 8, 8, 20, 24], np.int32)}


def kernel(x, wrong):
    outputs = prefill(x)
    if wrong:  # of the empty request 1 they go to where its number times the heads of keys points
        lse, flat = outputs["lse"], outputs["lse"].reshape(-1)
        lse[3:6] = 0
        flat[4 * 2 : 4 * 2 + 12] = -np.inf
    return outputs
