"""Sines are looked for behind half of the next power of two, where the table has them behind half of its width."""

import numpy as np
from honest import rotary_embedding, with_lines

SOURCE = "https://github.com/vllm-project/vllm-ascend/pull/12963"
LINE = "apply_rope_with_cos_sin_cache_inplace T=9 P=64 R=96 Nq=4 Nk=2 --attr head_size=128 --attr is_neox=true"
NAMES = r"sines"


def kernel(x, wrong):
    table = x.cos_sin_cache
    if wrong:
        flat = np.concatenate([table.reshape(-1), np.zeros(64, table.dtype)])
        sines = np.stack([flat[p * 96 + 64 : p * 96 + 64 + 48] for p in range(len(table))])
        table = np.concatenate([table[:, :48], sines], -1)
    return rotary_embedding(with_lines(x, cos_sin_cache=table), neox=True)
