"""Of four heads that one warp rotates only the first finds its partners: the others' come from lanes that do not take part, which give zeros."""

import numpy as np
from honest import f32

SOURCE = "https://github.com/vllm-project/vllm/issues/51049"
LINE = "apply_rope_with_cos_sin_cache_inplace T=12 P=128 R=64 Nq=8 Nk=4 --attr head_size=128"
NAMES = r"heads?.*(each|every|of) 4|(each|every|of) 4.*heads?|4 heads"
UNNAMED = "which heads one warp takes is the kernel's own"


def kernel(x, wrong):
    half = x.cos_sin_cache.shape[-1] // 2
    table = f32(x.cos_sin_cache)[x.positions if hasattr(x, "positions") else x.pos_ids]
    cos, sin = table[:, None, :half], table[:, None, half:]

    def rotate(t):
        heads = f32(t).reshape(len(t), -1, x.head_size).copy()
        a, b = heads[..., :half].copy(), heads[..., half : 2 * half].copy()
        pa, pb = a.copy(), b.copy()
        if wrong:
            lost = np.arange(heads.shape[1]) % 4 != 0
            pa[:, lost], pb[:, lost] = 0, 0
        heads[..., :half], heads[..., half : 2 * half] = a * cos - pb * sin, b * cos + pa * sin
        return heads.reshape(t.shape).astype(t.dtype)

    return {"query": rotate(x.query), "key": rotate(x.key)}
