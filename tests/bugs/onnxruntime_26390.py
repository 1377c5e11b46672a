"""Cosines and sines of pairs of neighbours are looked for at the element's number, where they lie at half of it: at the pair's."""

import numpy as np
from honest import f32

SOURCE = "https://github.com/microsoft/onnxruntime/pull/26390"
LINE = "rotary_embedding T=9 P=64 R=32 Nq=4 Nk=2 --attr head_size=64 --attr is_neox=false --dtype query=f32"
NAMES = r"cos_sin_cache.*(2 i|2i|times|twice|double|every second|i \* 2|two)"


def kernel(x, wrong):
    half = 16
    table = f32(x.cos_sin_cache).reshape(-1)
    pair = np.arange(half) * (2 if wrong else 1)

    def rotate(t):
        heads = f32(t).reshape(len(t), -1, 64).copy()
        for row, position in enumerate(x.positions):
            cos, sin = (table[(position * 32 + begin + pair) % len(table)] for begin in (0, half))
            first, second = heads[row, :, 0:32:2].copy(), heads[row, :, 1:32:2].copy()
            heads[row, :, 0:32:2], heads[row, :, 1:32:2] = first * cos - second * sin, second * cos + first * sin
        return heads.reshape(t.shape).astype(t.dtype)

    return {"query": rotate(x.query), "key": rotate(x.key)}
