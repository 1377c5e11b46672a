"""Log-sum-exps are written head by head where a row of heads belongs to each query."""

import numpy as np
from honest import prefill

SOURCE = "https://github.com/vllm-project/flash-attention/pull/87"
LINE = "batch_prefill_with_ragged_kv_cache Tq=7 Tk=12 N=4 Nk=2 D=64 Dv=64 B=2 --attr sm_scale=0.125 --attr return_lse=true"
NAMES = r"lse.*(columns|rows|transposed)"


def kernel(x, wrong):
    outputs = prefill(x)
    if wrong:
        outputs["lse"] = np.ascontiguousarray(outputs["lse"].T).reshape(outputs["lse"].shape)
    return outputs
