"""A token's heads are copied as one piece, where heads of the cache lie twice as far apart."""

import numpy as np

SOURCE = "https://github.com/vllm-project/vllm-xpu-kernels/pull/429"
LINE = "set_kv_buffer_kernel S=20 T=6 H=4 D=64"
NAMES = r"head.*(stride|apart|packed|side by side)|packed|stride"
UNNAMED = "keys and values of a slot share its memory, and each covers a part of the other"


def edit(inputs):
    wide = np.concatenate([inputs["k_cache"], inputs["v_cache"]], -1)
    return {"k_cache": wide[..., :64], "v_cache": wide[..., 64:]}


def kernel(x, wrong):
    slots, heads, width = x.k_cache.shape
    both = np.concatenate([x.k_cache, x.v_cache], -1).copy()
    flat = both.reshape(-1)
    for t, slot in enumerate(x.loc):
        for begin, t_rows in ((0, x.k), (64, x.v)):
            row = np.ascontiguousarray(t_rows[t]).reshape(-1)
            base = slot * heads * 128 + begin
            if wrong:
                flat[base : base + len(row)] = row[: len(flat) - base]
            else:
                both[slot, :, begin : begin + 64] = t_rows[t]
    return {"k_cache": both[..., :64].copy(), "v_cache": both[..., 64:].copy()}
