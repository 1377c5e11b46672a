"""Requests' queries lie packed, five a request, and are looked for and stored at the stride of a tile of eight."""

import numpy as np
from honest import BF16, f32, softmax_rows

SOURCE = "https://github.com/flashinfer-ai/flashinfer/pull/4059"
LINE = "trtllm_batch_decode_with_kv_cache_mla B=3 Q=5 N=1 pages=12 P=32 W=3 --attr bmm1_scale=0.07"
NAMES = r"(apart|stride|tiles? of|multiples? of|padded).*\b8\b|\b8\b (rows )?apart"
UNNAMED = "requests whose rows are both looked for and stored elsewhere are no call of the op"


def kernel(x, wrong):
    batch, queries, heads, _ = x.query.shape
    flat, cache = f32(x.query).reshape(-1, heads, 576), f32(x.kv_cache).reshape(-1, 576)
    out = np.zeros((batch * queries, heads, 512), BF16)
    for b, n in enumerate(x.seq_lens):
        keys = cache[[x.block_tables[b][t // 32] * 32 + t % 32 for t in range(n)]]
        for i in range(queries):
            row, near = b * (8 if wrong else queries) + i, keys[: max(n - queries + i + 1, 0)]
            if row < len(flat) and len(near):
                weights, total, _ = softmax_rows(flat[row] @ near.T * np.float32(x.bmm1_scale))
                out[row] = (weights @ near[:, :512] / total).astype(BF16)
    return {"out": out.reshape(batch, queries, heads, 512)}
