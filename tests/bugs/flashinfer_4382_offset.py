"""Queries of a request are looked for at its number, not at its offset: from the second request on they are others'."""

from honest import trtllm_decode

SOURCE = "https://github.com/flashinfer-ai/flashinfer/pull/4382"
LINE = "trtllm_batch_decode_with_kv_cache_mla B=3 Q=4 N=4 pages=17 P=32 W=5 --attr bmm1_scale=0.1352337788608801 --attr bmm2_scale=0.5"
NAMES = r"query.*(stride|step|one row|one too)"


def kernel(x, wrong):
    return trtllm_decode(x, query=(lambda b, i: ((b + i) // 4, (b + i) % 4)) if wrong else (lambda b, i: (b, i)))
