"""The branch for several queries takes the caller's mask, and there is none: every query sees all keys."""

from honest import flash_mla

SOURCE = "https://github.com/lablup/mlxcel/pull/998"
LINE = "flash_mla_with_kvcache B=2 Q=3 N=3 pages=6 W=3 parts=4 --attr softmax_scale=0.07 --attr causal=true"
NAMES = r"causal=false"


def kernel(x, wrong):
    return flash_mla(x, last=(lambda n, queries, i: n) if wrong else (lambda n, queries, i: n - queries + i + 1))
