"""Where a request's queries begin among its keys is made with the queries of all requests, not its own."""

import numpy as np
from honest import f32, softmax_rows

SOURCE = "https://github.com/pie-project/pie/pull/84"
LINE = "batch_mla_paged_attention T=9 N=2 pages=24 P=16 B=3 n=21 --attr causal=true --attr sm_scale=0.05"
NAMES = r"(queries|mask|keys|causal|length).*(all requests|every request|total|too few|fewer|hidden)"


def edit(inputs):
    return {"kv_len_arr": np.array([60, 90, 45], np.int32), "kv_indptr": np.array([0, 7, 14, 21], np.int32), "qo_indptr": np.array([0, 4, 6, 9], np.int32)}


def kernel(x, wrong):
    page, out = x.ckv_cache.shape[1], np.zeros(x.q_nope.shape, x.q_nope.dtype)
    cache = np.concatenate([f32(x.ckv_cache), f32(x.kpe_cache)], -1).reshape(-1, 576)
    for b, n in enumerate(x.kv_len_arr):
        pages = x.kv_indices[x.kv_indptr[b] : x.kv_indptr[b + 1]]
        keys = cache[[pages[t // page] * page + t % page for t in range(n)]]
        first, end = x.qo_indptr[b], x.qo_indptr[b + 1]
        for i in range(first, end):
            seen = n - (len(x.q_nope) if wrong else end - first) + i - first + 1
            query = np.concatenate([f32(x.q_nope[i]), f32(x.q_pe[i])], -1)
            weights, total, _ = softmax_rows(query @ keys[:seen].T * np.float32(x.sm_scale))
            out[i] = (weights @ keys[:seen, :512] / total).astype(out.dtype)
    return {"out": out}
