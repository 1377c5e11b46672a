"""Scales of every page are looked for at those of the cache's first one."""

import numpy as np

SOURCE = "https://github.com/ROCm/ATOM/pull/1466"
LINE = "get_index_k_scale_buffer pages=4 P=3 --attr seq_len=150"
NAMES = r"page_indices: every position is the first|first page|page 0"


def kernel(x, wrong):
    codes = np.zeros((x.seq_len, 128), np.uint8)
    scales = np.zeros((x.seq_len, 4), np.uint8)
    for t in range(x.seq_len):
        page, at = x.buf[x.page_indices[t // 64]], t % 64
        codes[t] = page[at * 128 : at * 128 + 128]
        scales[t] = (x.buf[0] if wrong else page)[8192 + at * 4 : 8192 + at * 4 + 4]
    return {"index_k": codes, "index_k_scale": scales}
