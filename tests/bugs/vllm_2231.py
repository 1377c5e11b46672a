"""Of a request longer than the window the last pages are kept, and their last one counts as full."""

from honest import cutlass_mla_decode

SOURCE = "https://github.com/vllm-project/vllm/pull/2231"
LINE = "cutlass_mla_decode B=4 N=4 pages=40 P=16 W=8 --attr sm_scale=0.0721687836"
NAMES = r"length|page|rounded"


def kernel(x, wrong):
    return cutlass_mla_decode(x, length=(lambda n, page: -(-n // page) * page if n > 64 else n) if wrong else (lambda n, page: n))
