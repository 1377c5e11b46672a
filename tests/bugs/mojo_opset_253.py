"""Rows of the table are taken to be as wide as a head, where they are as wide as its rotated part."""

from honest import f32

SOURCE = "https://github.com/XPU-Forces/mojo_opset/pull/253"
LINE = "rotary_embedding T=9 P=64 R=64 Nq=4 Nk=2 --attr head_size=128 --attr is_neox=true"
NAMES = r"cos_sin_cache.*(stride|apart|rows? of 128|width|wide)"


def edit(inputs):
    return {"positions": inputs["positions"] % 30}


def kernel(x, wrong):
    table = f32(x.cos_sin_cache).reshape(-1)
    stride = 128 if wrong else 64

    def rotate(t):
        heads = f32(t).reshape(len(t), -1, 128).copy()
        for row, position in enumerate(x.positions):
            cos, sin = (table[position * stride + begin :][:32] for begin in (0, 32))
            a, b = heads[row, :, :32].copy(), heads[row, :, 32:64].copy()
            r = lambda v: f32(v.astype(t.dtype))
            heads[row, :, :32], heads[row, :, 32:64] = r(a * cos) - r(b * sin), r(b * cos) + r(a * sin)
        return heads.reshape(t.shape).astype(t.dtype)

    return {"query": rotate(x.query), "key": rotate(x.key)}
