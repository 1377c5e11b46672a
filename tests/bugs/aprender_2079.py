"""Blocks are launched in a flat grid where each head needs its own: the first head is rotated, the others are left as zeros."""

from honest import rotary_embedding

SOURCE = "https://github.com/paiml/aprender/pull/2079"
LINE = "apply_rope_with_cos_sin_cache_inplace T=16 P=128 R=64 Nq=8 Nk=2 --attr head_size=64 --attr is_neox=false"
NAMES = r"zeros|not written"


def kernel(x, wrong):
    out = rotary_embedding(x, neox=False)
    if wrong:
        for t in out.values():
            t.reshape(len(t), -1, 64)[:, 1:] = 0
    return out
