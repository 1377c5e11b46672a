"""A request without keys leaves its log-sum-exps where they would lie were all requests equally long."""

import numpy as np
from honest import prefill

SOURCE = "https://github.com/Dao-AILab/flash-attention/issues/2842"
LINE = "batch_prefill_with_ragged_kv_cache Tq=24 Tk=70 N=4 Nk=2 D=64 Dv=64 B=3 --attr sm_scale=0.125 --attr return_lse=true"
NAMES = r"lse.*(-inf|request|rows?|empty|without keys|no keys)"


def edit(inputs):
    return {
        "qo_indptr": np.array([0, 4, 12, 24], inputs["qo_indptr"].dtype),
        "kv_indptr": np.array([0, 30, 30, 70], inputs["kv_indptr"].dtype),
    }


def kernel(x, wrong):
    out = prefill(x)
    if wrong:
        lse = np.ascontiguousarray(out["lse"].T).reshape(-1)  # heads by tokens
        lse.reshape(4, 24)[:, 4:12] = 0  # nothing is written there
        for h in range(4):
            at = (1 * 4 + h) * 12  # request 1 of requests of 12
            lse[at : at + 8] = -np.inf
        out["lse"] = np.ascontiguousarray(lse.reshape(4, 24).T)
    return out
