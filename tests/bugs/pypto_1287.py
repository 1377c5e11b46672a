"""Where a layer begins is counted in the kernel's pages of 16, not the cache's of 64."""

import numpy as np
SOURCE = "https://github.com/hw-native-sys/pypto/issues/1287"
LINE = "get_mla_kv_buffer S=96 T=17"
NAMES = r"loc"


def kernel(x, wrong):
    loc = np.array(x.loc)
    at = loc // 64 * 16 + loc % 16 if wrong else loc
    rows = np.ascontiguousarray(x.kv_buffer).reshape(96, -1)[at]
    return {"cache_k_nope": rows[:, None, :512].copy(), "cache_k_rope": rows[:, None, 512:].copy()}
