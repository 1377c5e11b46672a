"""Queries and keys are both counted from 0: a query behind a prefix misses as many of its latest keys as the prefix has."""

from honest import extend_attention

SOURCE = "https://github.com/gittensor-ai-lab/sparkinfer/pull/4"
LINE = "extend_attention_fwd T=20 N=4 Nk=2 D=64 Dv=64 B=2 S=90 n=50 --attr sm_scale=0.125"
NAMES = r"top|align|prefix|from 0|begin"
UNNAMED = "fewer keys than a prefix has, row by row: no number of the call counts so"


def kernel(x, wrong):
    return extend_attention(x, near=lambda at, prefix, keys: slice(0, at + 1 - wrong * prefix))
