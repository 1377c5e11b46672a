"""A tile's rows behind a request's last one are stored too, over the first rows of the next request: they were made of queries of the next one and keys of this."""

import numpy as np
from honest import f32, softmax_rows

SOURCE = "https://github.com/ROCm/aiter/pull/3391"
LINE = "batch_prefill_with_ragged_kv_cache Tq=40 Tk=70 N=4 Nk=2 D=64 Dv=64 B=3 --attr sm_scale=0.125"
NAMES = r"(first|begin).*(request|rows)|request.*before|previous|earlier"


def kernel(x, wrong):
    out = np.zeros((*x.q.shape[:2], 64), x.q.dtype)
    tile = 4

    def rows_of(b, first, end):
        keys = slice(x.kv_indptr[b], x.kv_indptr[b + 1])
        for h in range(4):
            if end > first and keys.stop > keys.start:
                weights, total, _ = softmax_rows(f32(x.q[first:end, h]) @ f32(x.k[keys, h // 2]).T * np.float32(0.125))
                out[first:end, h] = (weights @ f32(x.v[keys, h // 2]) / total).astype(out.dtype)

    for b in reversed(range(3)):
        first, end = int(x.qo_indptr[b]), int(x.qo_indptr[b + 1])
        rows_of(b, first, min(first - (first - end) // tile * tile, 40) if wrong else end)
    return {"out": out}
