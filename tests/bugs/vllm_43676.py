"""The rotated part is not handed on: the whole head is rotated, with what follows in the table for its second half."""

import numpy as np
from honest import rotary_embedding, with_lines

SOURCE = "https://github.com/vllm-project/vllm/pull/43676"
LINE = "apply_rope_with_cos_sin_cache_inplace T=9 P=64 R=64 Nq=4 Nk=2 --attr head_size=128 --attr is_neox=true"
NAMES = r"whole head|head_size|R=128"


def kernel(x, wrong):
    table = x.cos_sin_cache
    if wrong:  # rows are as far apart as they were, but 128 wide
        flat = np.concatenate([table.reshape(-1), np.zeros(64, table.dtype)])
        table = np.stack([flat[p * 64 : p * 64 + 128] for p in range(len(table))])
    return rotary_embedding(with_lines(x, cos_sin_cache=table), neox=True)
