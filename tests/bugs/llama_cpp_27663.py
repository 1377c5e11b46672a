"""A copy takes the fast path for packed destinations, though the destination's rows are slices of wider ones."""

import numpy as np

SOURCE = "https://github.com/ggml-org/llama.cpp/pull/27663"
LINE = "set_kv_buffer_kernel S=16 T=5 H=2 D=32"
NAMES = r"packed|stride|apart"


def edit(inputs):
    return {name: np.concatenate([inputs[name]] * 2, -1)[..., :32] for name in ("k_cache", "v_cache")}


def kernel(x, wrong):
    out = {}
    for name, rows in (("k_cache", x.k), ("v_cache", x.v)):
        cache = getattr(x, name)
        wide = np.concatenate([cache, cache], -1).copy()
        flat = wide.reshape(-1)
        for t, slot in enumerate(x.loc):
            if wrong:
                flat[slot * 64 : slot * 64 + 64] = np.ascontiguousarray(rows[t]).reshape(-1)
            else:
                wide[slot, :, :32] = rows[t]
        out[name] = wide[..., :32].copy()
    return out
