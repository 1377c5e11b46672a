"""The causal mask hides what lies behind the key after the query's own: each query sees one key too many."""

from honest import flash_mla

SOURCE = "https://github.com/flashinfer-ai/flashinfer/pull/348"
LINE = "flash_mla_with_kvcache B=3 Q=4 N=1 pages=9 W=3 parts=4 --attr softmax_scale=0.07 --attr causal=true"
NAMES = r"(one|1) (key )?(more|later|too many)|more.*by (one|1)|off by one"


def kernel(x, wrong):
    return flash_mla(x, last=lambda n, queries, i: min(n - queries + i + 1 + wrong, n))
