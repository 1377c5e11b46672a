"""The dimension that counts as the sequence is that of the heads: a head's number is its position."""

import numpy as np
from honest import f32

SOURCE = "https://github.com/mlfoundations/open_lm/issues/4"
LINE = "apply_rope_with_cos_sin_cache_inplace T=12 P=128 R=64 Nq=8 Nk=2 --attr head_size=64 --attr is_neox=true"
NAMES = r"heads?"


def kernel(x, wrong):
    def rotate(t):
        heads = f32(t).reshape(len(t), -1, 64)
        at = np.broadcast_to(np.arange(heads.shape[1])[None] if wrong else x.positions[:, None], heads.shape[:2])
        cos, sin = f32(x.cos_sin_cache)[at][..., :32], f32(x.cos_sin_cache)[at][..., 32:]
        a, b = heads[..., :32], heads[..., 32:]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1).reshape(t.shape).astype(t.dtype)

    return {"query": rotate(x.query), "key": rotate(x.key)}
