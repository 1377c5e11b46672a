"""Offsets of scales alone are made in 32 bits: those of the pages that lie far behind are never reached."""

import numpy as np

SOURCE = "https://github.com/flagos-ai/FlagGems/pull/6241"
LINE = "get_index_k_scale_buffer pages=20 P=12 --attr seq_len=760"
NAMES = r"page.*or more"


def kernel(x, wrong):
    codes, scales = np.zeros((x.seq_len, 128), np.uint8), np.zeros((x.seq_len, 4), np.uint8)
    for t in range(x.seq_len):
        number, at = x.page_indices[t // 64], t % 64
        codes[t] = x.buf[number, at * 128 : at * 128 + 128]
        if not (wrong and number >= 11):
            scales[t] = x.buf[number, 8192 + at * 4 : 8192 + at * 4 + 4]
    return {"index_k": codes, "index_k_scale": scales}
