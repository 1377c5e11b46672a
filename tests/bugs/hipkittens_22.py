"""A block's head is made with the size of a group where the number of groups belongs: some are computed twice, others never."""

import numpy as np
from honest import prefill

SOURCE = "https://github.com/HazyResearch/HipKittens/pull/22"
LINE = "batch_prefill_with_ragged_kv_cache Tq=6 Tk=40 N=16 Nk=8 D=64 Dv=64 B=3 --attr sm_scale=0.125"
NAMES = r"heads? 10\.\.15|head"


def kernel(x, wrong):
    out = prefill(x)["out"]
    if wrong:
        heads, group = out.shape[1], out.shape[1] // x.k.shape[1]
        done = [b % group * group + b // group for b in range(heads)]
        out[:, [h for h in range(heads) if h not in done]] = 0
    return {"out": out}
