"""Requests whose pages do not follow one another get nothing: their rows are zeros."""

import numpy as np
from honest import f32, softmax_rows

SOURCE = "https://github.com/flashinfer-ai/flashinfer/issues/3219"
LINE = "batch_mla_paged_attention T=4 N=2 pages=24 P=16 B=4 n=20 --attr sm_scale=0.05"
NAMES = r"kv_indices|pages?"
UNNAMED = "zeros are told, and where: not that pages lie apart there"


def edit(inputs):
    return {
        "kv_len_arr": np.array([70, 64, 80, 75], np.int32),
        "kv_indptr": np.array([0, 5, 10, 15, 20], np.int32),
        "qo_indptr": np.array([0, 1, 2, 3, 4], np.int32),
        "kv_indices": np.array([3, 4, 5, 6, 7, 9, 1, 20, 14, 2, 15, 16, 17, 18, 19, 23, 0, 8, 22, 11], np.int32),
    }


def kernel(x, wrong):
    page, out = x.ckv_cache.shape[1], np.zeros(x.q_nope.shape, x.q_nope.dtype)
    cache = np.concatenate([f32(x.ckv_cache), f32(x.kpe_cache)], -1).reshape(-1, 576)
    for b, n in enumerate(x.kv_len_arr):
        pages = x.kv_indices[x.kv_indptr[b] : x.kv_indptr[b + 1]]
        if wrong and np.any(np.diff(pages) != 1):
            continue
        keys = cache[[pages[t // page] * page + t % page for t in range(n)]]
        for i in range(x.qo_indptr[b], x.qo_indptr[b + 1]):
            query = np.concatenate([f32(x.q_nope[i]), f32(x.q_pe[i])], -1)
            weights, total, _ = softmax_rows(query @ keys.T * np.float32(x.sm_scale))
            out[i] = (weights @ keys[:, :512] / total).astype(out.dtype)
    return {"out": out}
