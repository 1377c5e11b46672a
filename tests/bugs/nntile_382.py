"""Rotated pairs of neighbours are put back as halves: all first ones, then all second ones."""

import numpy as np
from honest import rotary_embedding

SOURCE = "https://github.com/nntile/nntile/pull/382"
LINE = "apply_rope_with_cos_sin_cache_inplace T=16 P=128 R=64 Nq=4 Nk=1 --attr head_size=64 --attr is_neox=false"
NAMES = r"interleav|halves|pairs|neighbours"


def kernel(x, wrong):
    out = rotary_embedding(x, neox=False)
    if wrong:
        for name, t in out.items():
            heads = t.reshape(len(t), -1, 64)
            out[name] = np.concatenate([heads[..., 0::2], heads[..., 1::2]], -1).reshape(t.shape)
    return out
