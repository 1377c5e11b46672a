"""Twelve warps take eight columns each: the thirteenth eight nobody writes."""

from honest import BF16, f32

SOURCE = "https://github.com/tile-ai/tilelang/issues/2537"
LINE = "linear T=16 N=104 K=128"
NAMES = r"tail|last (8|columns|tile)|96|zeros|not written"


def kernel(x, wrong):
    out = (f32(x.input) @ f32(x.weight).T).astype(BF16)
    if wrong:
        out[:, 96:] = 0
    return {"output": out}
