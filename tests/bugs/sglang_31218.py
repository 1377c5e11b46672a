"""The buffer's rows are pages, and a token's slot is taken for the number of a row."""

import numpy as np

SOURCE = "https://github.com/sgl-project/sglang/pull/31218"
LINE = "set_index_k_scale_buffer pages=8 n=5"
NAMES = r"page"


def edit(inputs):
    return {"loc": np.array([1, 3, 4, 6, 7], inputs["loc"].dtype)}


def kernel(x, wrong):
    buf = x.buf.copy()
    for t, slot in enumerate(x.loc):
        page, at = (slot, 0) if wrong else (slot // 64, slot % 64)
        buf[page, at * 128 : at * 128 + 128] = x.index_k[t].view(np.uint8)
        buf[page, 8192 + at * 4 : 8196 + at * 4] = np.frombuffer(np.float32(x.index_k_scale.reshape(-1)[t]).tobytes(), np.uint8)
    return {"buf": buf}
