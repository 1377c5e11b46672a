"""A page more than a request has tokens for is in its table where its last one is full: the stale page counts."""

import numpy as np
from honest import cutlass_mla_decode

SOURCE = "https://github.com/pegainfer-project/pegainfer/issues/291"
LINE = "cutlass_mla_decode B=4 N=16 pages=24 P=16 W=8 --attr sm_scale=0.0721687836"
NAMES = r"page"


def edit(inputs):
    return {"seq_lens": np.array([32, 45, 16, 96], np.int32)}


def kernel(x, wrong):
    return cutlass_mla_decode(x, length=lambda n, page: n + page if wrong and n % page == 0 else n)
