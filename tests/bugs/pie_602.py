"""Pairs lie half a head apart where the rotated part is narrower: half of it apart."""

import numpy as np
from honest import f32

SOURCE = "https://github.com/pie-project/pie/pull/603"
LINE = "apply_rope_with_cos_sin_cache_inplace T=9 P=64 R=64 Nq=4 Nk=2 --attr head_size=128 --attr is_neox=true"
NAMES = r"half (of )?(a|the) head|head's width"


def kernel(x, wrong):
    apart = 64 if wrong else 32
    cos, sin = (f32(x.cos_sin_cache)[x.positions][:, None, part] for part in (slice(32), slice(32, 64)))

    def rotate(t):
        heads = f32(t).reshape(len(t), -1, 128)
        first, second = heads[..., :32].copy(), heads[..., apart : apart + 32].copy()
        heads[..., :32], heads[..., apart : apart + 32] = first * cos - second * sin, second * cos + first * sin
        return heads.reshape(t.shape).astype(t.dtype)

    return {"query": rotate(x.query), "key": rotate(x.key)}
