"""Rows of a folded layout are taken four times as far apart as they lie: parts of later queries are stored behind the others', and rows stay unwritten."""

import numpy as np
from honest import trtllm_decode

SOURCE = "https://github.com/ROCm/aiter/pull/3910"
LINE = "trtllm_batch_decode_with_kv_cache_mla B=3 Q=4 N=4 pages=17 P=32 W=5 --attr bmm1_scale=0.1352337788608801 --attr bmm2_scale=1"
NAMES = r"stride|apart|further|times"
UNNAMED = "where rows are stored is seen only where rows of other queries cover none"


def kernel(x, wrong):
    out = trtllm_decode(x)["out"]
    if wrong:
        rows = out.reshape(12, 4, 512)
        stored = np.zeros_like(rows)
        for r in range(12):
            if r * 4 < 12:
                stored[r * 4] = rows[r]
        out = stored.reshape(out.shape)
    return {"out": out}
