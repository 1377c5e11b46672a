"""All queries of a request see the keys of its first one: the others miss the newest."""

from honest import trtllm_decode

SOURCE = "https://github.com/flashinfer-ai/flashinfer/pull/4382"
LINE = "trtllm_batch_decode_with_kv_cache_mla B=3 Q=4 N=4 pages=17 P=32 W=5 --attr bmm1_scale=0.1352337788608801 --attr bmm2_scale=0.5"
NAMES = r"first query"


def kernel(x, wrong):
    return trtllm_decode(x, last=lambda n, queries, i: n - queries + (1 if wrong else i + 1))
