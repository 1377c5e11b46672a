"""A request with a page that lies far behind in the cache gets zeros."""

import numpy as np
from honest import xqa_decode

SOURCE = "https://github.com/flashinfer-ai/flashinfer/issues/3130"
LINE = "xqa_batch_decode_with_kv_cache_mla B=12 N=1 pages=24 P=32 W=2 --attr bmm1_scale=0.07"
NAMES = r"page.*or more"


def kernel(x, wrong):
    outputs = xqa_decode(x)
    for b, n in enumerate(x.seq_lens):
        if wrong and max(x.block_tables[b][: -(-n // 32)]) >= 16:
            outputs["out"][b] = 0
    return outputs
