"""Positions are rounded to bf16, which holds every whole number up to 256 alone."""

import numpy as np
from honest import BF16, f32, rotary_embedding, with_lines

SOURCE = "https://github.com/huggingface/transformers/issues/25681"
LINE = "apply_rope_with_cos_sin_cache_inplace T=16 P=4096 R=64 Nq=4 Nk=1 --attr head_size=64 --attr is_neox=true"
NAMES = r"pos_ids.*(bf16|rounded)|positions.*(bf16|rounded)"


def kernel(x, wrong):
    rounded = np.minimum(f32(x.positions.astype(np.float32).astype(BF16)).astype(np.int64), len(x.cos_sin_cache) - 1)
    return rotary_embedding(with_lines(x, positions=rounded if wrong else x.positions), neox=True)
