"""Where the left matrix is the same for all, products are made as one with the right ones side by side, as which they do not lie: the first is right, what follows it is written over itself, and most of it never."""

import numpy as np
from honest import BF16, f32

SOURCE = "https://github.com/huggingface/candle/pull/3960"
LINE = "bmm L=3 M=6 N=40 K=72"
NAMES = r"(first|0).*(alone|only|matri)|(alone|only).*(first|0)|side by side|not written|never written|left out"
UNNAMED = "what a product over another layout leaves is the kernel's own"


def edit(inputs):
    return {"mat1": np.repeat(np.asarray(inputs["mat1"])[:1], 3, axis=0)}


def kernel(x, wrong):
    if not wrong:
        return {"out": (f32(x.mat1) @ f32(x.mat2)).astype(BF16)}
    left, flat, out = f32(x.mat1[0]), f32(x.mat2).reshape(-1), np.zeros(3 * 6 * 40, np.float32)
    for i in range(6):
        columns = np.arange(3 * 40)
        right = np.array([flat[k * 40 + columns] for k in range(72)])
        out[i * 40 + columns] = left[i] @ right
    return {"out": out.reshape(3, 6, 40).astype(BF16)}
