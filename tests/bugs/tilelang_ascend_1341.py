"""The last tile along K holds a part that is no multiple of 16: what is beyond the last 16 is lost."""

from honest import f32

SOURCE = "https://github.com/tile-ai/tilelang-ascend/issues/1341"
LINE = "linear T=16 N=64 K=200"
NAMES = r"19[12]|last 8|multiple of (8|16|32|64)"


def kernel(x, wrong):
    k = 192 if wrong else 200
    return {"output": (f32(x.input)[:, :k] @ f32(x.weight)[:, :k].T).astype(x.input.dtype)}
