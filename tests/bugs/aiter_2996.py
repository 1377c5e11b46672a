"""Pages are taken to hold one token, whatever their size."""

from honest import cutlass_mla_decode

SOURCE = "https://github.com/ROCm/aiter/issues/2996"
LINE = "cutlass_mla_decode B=4 N=16 pages=24 P=16 W=8 --attr sm_scale=0.1352337788608801"
NAMES = r"page.*one row"


def kernel(x, wrong):
    return cutlass_mla_decode(x, slot=(lambda table, t, page: table[t // page] + t % page) if wrong else (lambda table, t, page: table[t // page] * page + t % page))
