"""Lengths are rounded up to whole pages: what is stale behind the end counts."""

from honest import cutlass_mla_decode

SOURCE = "https://github.com/vectorch-ai/ScaleLLM/pull/416"
LINE = "cutlass_mla_decode B=4 N=16 pages=24 P=16 W=8 --attr sm_scale=0.1352337788608801"
NAMES = r"whole tiles or pages"


def kernel(x, wrong):
    return cutlass_mla_decode(x, length=lambda n, page: -(-n // page) * page if wrong else n)
