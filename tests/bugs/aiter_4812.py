"""A peer is read before its input is there: of one half what the call before had is added."""

from honest import F32, f32

SOURCE = "https://github.com/ROCm/aiter/pull/4812"
LINE = "all_reduce R=4 T=8 H=512"
NAMES = r"rank 2|inp"


def kernel(x, wrong):
    terms = f32(x.inp).copy()
    if wrong:
        terms[2, 4:] = terms[2, :4]
    return {"out": terms.sum(0, dtype=F32).astype(x.inp.dtype)}
