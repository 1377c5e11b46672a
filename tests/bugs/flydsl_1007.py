"""The number of loads of a tile is cut to whole ones: the last rows of each tile of 112 are never loaded, and what the memory held before is multiplied."""

from honest import BF16, f32

SOURCE = "https://github.com/ROCm/FlyDSL/pull/1007"
LINE = "linear T=224 N=48 K=128"
NAMES = r"rows?.*(96|16|112|tile)|tiles? of 112"


def kernel(x, wrong):
    a = f32(x.input).copy()
    if wrong:
        a[96:112], a[208:224] = 0, 0
    return {"output": (a @ f32(x.weight).T).astype(BF16)}
