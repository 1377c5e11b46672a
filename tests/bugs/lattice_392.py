"""Pairs are neighbours in one path of a model whose pairs are half a head apart."""

from honest import rotary_embedding

SOURCE = "https://github.com/ohdearquant/lattice/issues/392"
LINE = "apply_rope_with_cos_sin_cache_inplace T=9 P=128 R=64 Nq=8 Nk=2 --attr head_size=128"
NAMES = r"is_neox"


def kernel(x, wrong):
    return rotary_embedding(x, neox=not wrong)
