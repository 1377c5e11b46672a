"""The offset of the positions is not part of what is remembered: every call gets the angles from 0 on."""

import numpy as np
from honest import f32

SOURCE = "https://github.com/lucidrains/rotary-embedding-torch/issues/11"
LINE = "apply_rope_with_cos_sin_cache_inplace T=12 P=128 R=64 Nq=4 Nk=1 --attr head_size=64 --attr is_neox=false"
NAMES = r"positions.*(ignored|row|own|0, 1|counted|from 0|begin|first|offset|less)"


def edit(inputs):
    return {"positions": np.arange(40, 52).astype(inputs["positions"].dtype)}


def kernel(x, wrong):
    positions = x.positions - 40 if wrong else x.positions
    table = f32(x.cos_sin_cache)[positions]
    cos, sin = table[:, None, :32], table[:, None, 32:]

    def rotate(t):
        heads = f32(t).reshape(len(t), -1, 64)
        out = np.empty_like(heads)
        out[..., 0::2] = heads[..., 0::2] * cos - heads[..., 1::2] * sin
        out[..., 1::2] = heads[..., 1::2] * cos + heads[..., 0::2] * sin
        return out.reshape(t.shape).astype(t.dtype)

    return {"query": rotate(x.query), "key": rotate(x.key)}
