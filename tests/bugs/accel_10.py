"""A prefill takes the table of pages and ignores it: keys are those that lie one behind the other in the cache."""

import numpy as np
from honest import flash_mla, with_lines

SOURCE = "https://github.com/golang-design/accel/issues/10"
LINE = "flash_mla_with_kvcache B=2 Q=3 N=3 pages=6 W=3 parts=4 --attr softmax_scale=0.07 --attr causal=true"
NAMES = r"block_table.*(in order|ignored|not looked at|own number|in turn)"


def kernel(x, wrong):
    if wrong:
        pages = np.arange(x.block_table.size, dtype=x.block_table.dtype)
        x = with_lines(x, block_table=pages.reshape(x.block_table.shape) % len(x.k_cache))
    return flash_mla(x, lambda n, queries, i: n - queries + i + 1)
