"""Pairs of neighbours are looked for at half of their number: each two pairs share an angle, and the upper half of the angles is never used."""

import numpy as np
from honest import rotary_embedding, with_lines

SOURCE = "https://github.com/vllm-project/vllm-ascend/pull/11027"
LINE = "apply_rope_with_cos_sin_cache_inplace T=9 P=64 R=64 Nq=4 Nk=2 --attr head_size=64 --attr is_neox=false"
NAMES = r"cos_sin_cache.*(half|every|twice|pair|first|each)|angle|cosines"


def kernel(x, wrong):
    table, half = x.cos_sin_cache, np.arange(32)
    if wrong:
        table = np.concatenate([table[:, half // 2], table[:, 32 + half // 2]], -1)
    return rotary_embedding(with_lines(x, cos_sin_cache=table), neox=False)
