"""What is not rotated is copied from where it would lie were the rows packed."""

import numpy as np
from honest import rotary_embedding

SOURCE = "https://github.com/ggml-org/llama.cpp/pull/14580"
LINE = "apply_rope_with_cos_sin_cache_inplace T=8 P=64 R=64 Nq=4 Nk=2 --attr head_size=128 --special gaps"
NAMES = r"packed|unrotated|not rotated|stride"
UNNAMED = "what is copied lies in the gaps of strided rows, whose numbers the outputs do not tell from any other"


def kernel(x, wrong):
    out = rotary_embedding(x, neox=True)
    if wrong:
        for name in ("query", "key"):
            given = getattr(x, name)
            packed = np.lib.stride_tricks.as_strided(given, given.shape, np.empty(given.shape, given.dtype).strides)
            heads, source = out[name].reshape(8, -1, 128), np.ascontiguousarray(packed).reshape(8, -1, 128)
            heads[..., 64:] = source[..., 64:]
    return out
