"""The distance between rows of the page table was fixed when the kernel was compiled, for a wider one."""

import numpy as np
from honest import trtllm_decode, with_lines

SOURCE = "https://github.com/local-inference-lab/b12x/pull/85"
LINE = "trtllm_batch_decode_with_kv_cache_mla B=4 Q=1 N=4 pages=24 P=32 W=6 --attr bmm1_scale=0.1352337788608801 --attr bmm2_scale=1"
NAMES = r"block_tables.*(rows of|width|stride|apart|other length|8)"


def kernel(x, wrong):
    if wrong:
        flat = np.concatenate([x.block_tables.reshape(-1), np.zeros(16, x.block_tables.dtype)])
        x = with_lines(x, block_tables=np.stack([flat[b * 8 : b * 8 + 6] for b in range(len(x.block_tables))]))
    return trtllm_decode(x)
