"""Queries and keys are crossed: the second half of a query's head is made of the key's, the first half of a key's of the query's."""

import numpy as np
from honest import f32

SOURCE = "https://github.com/hpcaitech/ColossalAI/pull/6444"
LINE = "apply_rope_with_cos_sin_cache_inplace T=7 P=128 R=64 Nq=4 Nk=4 --attr head_size=64"
NAMES = r"(query|quer).*(key).*half|half.*(key|query)|exchanged|crossed"
UNNAMED = "halves of two outputs that were crossed are no call of the op"


def kernel(x, wrong):
    table = f32(x.cos_sin_cache)[x.positions]
    cos, sin = table[:, None, :32], table[:, None, 32:]
    q, k = (f32(t).reshape(7, -1, 64) for t in (x.query, x.key))
    first, second = lambda t: t[..., :32] * cos - t[..., 32:] * sin, lambda t: t[..., 32:] * cos + t[..., :32] * sin
    query = np.concatenate([first(q), second(k if wrong else q)], -1)
    key = np.concatenate([first(q if wrong else k), second(k)], -1)
    return {"query": query.reshape(x.query.shape).astype(x.query.dtype), "key": key.reshape(x.key.shape).astype(x.key.dtype)}
