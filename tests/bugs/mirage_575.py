"""Four numbers of pages are loaded, once: requests of more pages see their first four again."""

import numpy as np
from honest import trtllm_decode, with_lines

SOURCE = "https://github.com/mirage-project/mirage/pull/575"
LINE = "trtllm_batch_decode_with_kv_cache_mla B=3 Q=1 N=4 pages=24 P=32 W=8 --attr bmm1_scale=0.1352337788608801 --attr bmm2_scale=1"
NAMES = r"block_tables.*(mod 4|first 4|of each 4)"


def edit(inputs):
    return {"seq_lens": np.array([250, 140, 97], inputs["seq_lens"].dtype)}


def kernel(x, wrong):
    if wrong:
        x = with_lines(x, block_tables=x.block_tables[:, np.arange(x.block_tables.shape[1]) % 4])
    return trtllm_decode(x)
