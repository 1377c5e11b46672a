"""A table of slots, token by token, is handed on where one of pages is asked for: page p is the page of token p."""

import numpy as np
from honest import BF16, scores_of_mla, softmax_rows, with_lines

SOURCE = "https://github.com/sgl-project/sglang/pull/23757"
LINE = "cutlass_mla_decode B=4 N=16 pages=24 P=16 W=8 --attr sm_scale=0.0721687836"
NAMES = r"page_table.*(/ 16|first|i / P|one for all|times as large|same)"


def kernel(x, wrong):
    if wrong:
        x = with_lines(x, page_table=np.repeat(x.page_table, 16, axis=1)[:, : x.page_table.shape[1]])
    out = np.zeros(x.q_nope.shape, BF16)
    for b, keys, scores in scores_of_mla(x):
        weights, total, _ = softmax_rows(scores)
        out[b] = (weights @ keys[:, :512] / total).astype(BF16)
    return {"out": out}
