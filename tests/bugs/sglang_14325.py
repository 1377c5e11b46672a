"""A row's pages are looked for at its number, as if each row were a request of its own."""

import numpy as np

SOURCE = "https://github.com/sgl-project/sglang/pull/14325"
LINE = "fast_topk_transform_fused B=6 L=3000 R=3 W=3100"
NAMES = r"page_table_size_1|cu_seqlens_q"


def edit(inputs):
    return {"cu_seqlens_q": np.array([0, 2, 5, 6], np.int32)}


def kernel(x, wrong):
    requests = len(x.page_table_size_1)
    out = np.full((len(x.lengths), 2048), -1, np.int32)
    for b, n in enumerate(x.lengths):
        request = int(np.searchsorted(x.cu_seqlens_q, b, side="right")) - 1
        table = x.page_table_size_1[min(b, requests - 1) if wrong else request]
        chosen = np.arange(max(n, 0)) if n <= 2048 else np.argsort(-x.score[b, :n], kind="stable")[:2048]
        out[b, : len(chosen)] = table[chosen]
    return {"dst_page_table": out}
