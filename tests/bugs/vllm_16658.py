"""Keys that are a slice of wider rows are read as if they were packed."""

import numpy as np
from honest import packed, rotary_embedding, with_lines

SOURCE = "https://github.com/vllm-project/vllm/issues/16658"
LINE = "apply_rope_with_cos_sin_cache_inplace T=16 P=128 R=64 Nq=8 Nk=1 --attr head_size=64 --attr is_neox=false"
NAMES = r"packed"


def edit(inputs):
    """The rotated part of rows of 576, as a slice."""
    wide = np.tile(inputs["key"], (1, 9))
    wide[:, :512] = np.arange(len(wide) * 512).reshape(len(wide), 512) % 7
    return {"key": wide[:, 512:]}


def kernel(x, wrong):
    if wrong:
        x = with_lines(x, key=packed(x.key))
    return rotary_embedding(x, neox=False)
