"""The kernel is written for heads of 64 numbers: of wider ones the first 64 alone make the scores."""

import numpy as np
from honest import prefill, with_lines

SOURCE = "https://github.com/triton-lang/triton/issues/621"
LINE = "batch_prefill_with_ragged_kv_cache Tq=9 Tk=60 N=4 Nk=2 D=128 Dv=128 B=2 --attr sm_scale=0.09"
NAMES = r"64|half"


def kernel(x, wrong):
    if wrong:
        x = with_lines(x, q=x.q[..., :64], k=x.k[..., :64])
    return {"out": prefill(x)["out"]}
