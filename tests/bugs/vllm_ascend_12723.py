"""Sines are looked for behind half of the padded width, a power of two, where they lie behind half of the width."""

import numpy as np
from honest import f32

SOURCE = "https://github.com/vllm-project/vllm-ascend/issues/12723"
LINE = "rotary_embedding T=8 P=64 R=48 Nq=4 Nk=2 --attr head_size=64 --dtype query=f32"
NAMES = r"cos_sin_cache.*(8|32|power of two|padded|further)|sin.*(8|32|power of two|padded|further)"


def kernel(x, wrong):
    table = np.concatenate([f32(x.cos_sin_cache).reshape(-1), np.zeros(64, np.float32)])
    begins = 32 if wrong else 24
    cos = np.array([table[p * 48 : p * 48 + 24] for p in x.positions])[:, None]
    sin = np.array([table[p * 48 + begins : p * 48 + begins + 24] for p in x.positions])[:, None]

    def rotate(t):
        heads = f32(t).reshape(len(t), -1, 64).copy()
        a, b = heads[..., :24].copy(), heads[..., 24:48].copy()
        heads[..., :24], heads[..., 24:48] = a * cos - b * sin, b * cos + a * sin
        return heads.reshape(t.shape)

    return {"query": rotate(x.query), "key": rotate(x.key)}
