"""A scale of 128 is taken for the code that stands for NaN."""

import numpy as np
from honest import BF16, E8M0, f32, fp4_values, out_of_tiles

SOURCE = "https://github.com/sgl-project/sglang/pull/25519"
LINE = "mm_fp4 M=8 N=32 K=256 --attr use_nvfp4=false --attr block_size=32 --dtype a_descale=f8_e8m0"
NAMES = r"(a|b)_descale.*128|128.*NaN"


def edit(inputs):
    a = np.array(inputs["a_descale"]).view(np.uint8).copy()
    a[a == 134] = 133
    a.reshape(-1)[16 * 2 + 1] = a.reshape(-1)[16 * 5 + 2] = 134
    b = np.array(inputs["b_descale"])
    bytes_b = np.ascontiguousarray(b.T).view(np.uint8).copy()
    bytes_b[bytes_b == 134] = 133
    return {"a_descale": a.view(E8M0), "b_descale": bytes_b.view(E8M0).T}


def kernel(x, wrong):
    def scales(tiles, rows):
        bytes_ = out_of_tiles(np.ascontiguousarray(tiles).view(np.uint8), rows, x.a.shape[1] // 16)
        return np.where(wrong & (bytes_ == 134), np.nan, np.exp2(bytes_.astype(np.float64) - 127)).astype(np.float32)

    a, b = fp4_values(x.a), fp4_values(np.ascontiguousarray(x.b.T))
    sa, sb = (np.repeat(scales(t, len(v)), 32, 1) for t, v in ((x.a_descale, a), (x.b_descale.T, b)))
    with np.errstate(all="ignore"):
        return {"out": (np.float32(x.alpha[0]) * ((a * sa) @ (b * sb).T)).astype(BF16)}
