"""The head is left out of where a row is stored: all heads go to the place of the first, and the last one stays."""

import numpy as np

SOURCE = "https://github.com/vllm-project/vllm/pull/29887"
LINE = "set_kv_buffer_kernel S=20 T=9 H=4 D=64"
NAMES = r"head"
UNNAMED = "rows are said to be stored 0 apart, that it is along the heads is not"


def kernel(x, wrong):
    out = {}
    for name, cache, rows in (("k_cache", x.k_cache, x.k), ("v_cache", x.v_cache, x.v)):
        cache = np.array(cache)
        for t, slot in enumerate(x.loc):
            if wrong:
                cache[slot, 0] = rows[t, -1]
            else:
                cache[slot] = rows[t]
        out[name] = cache
    return out
