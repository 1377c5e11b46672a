"""Rows whose scores begin behind those of other requests are searched from column 0."""

import numpy as np
from honest import f32

SOURCE = "https://github.com/sgl-project/sglang/pull/12582"
LINE = "fast_topk_transform_fused B=4 L=6000 R=2 W=6000 --with row_starts"
NAMES = r"begin in column 0"


def kernel(x, wrong):
    rows, topk = len(x.lengths), 2048
    out = np.full((rows, topk), -1, np.int32)
    for b in range(rows):
        table = x.page_table_size_1[np.searchsorted(x.cu_seqlens_q, b, side="right") - 1]
        n, first = int(x.lengths[b]), 0 if wrong else int(x.row_starts[b])
        if n <= topk:
            out[b, : max(n, 0)] = table[: max(n, 0)]
        else:
            chosen = np.sort(np.argsort(-f32(x.score[b, first : first + n]), kind="stable")[:topk])
            out[b] = table[chosen]
    return {"dst_page_table": out}
