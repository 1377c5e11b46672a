"""The scales of a cache of 8 bits are not handed on: keys and values stay in units of their codes."""

import numpy as np
from honest import f32, softmax_rows

SOURCE = "https://github.com/flashinfer-ai/flashinfer/issues/1023"
LINE = (
    "batch_mla_paged_attention T=9 N=2 pages=24 P=16 B=3 n=21 --attr sm_scale=0.05 --attr ckv_scale=0.05 --attr kpe_scale=0.05 "
    "--dtype ckv_cache=f8_e4m3"
)
NAMES = r"ckv_scale|kpe_scale"


def kernel(x, wrong):
    page, out = x.ckv_cache.shape[1], np.zeros(x.q_nope.shape, x.q_nope.dtype)
    scale = np.float32(1 if wrong else x.ckv_scale)
    cache = np.concatenate([f32(x.ckv_cache) * scale, f32(x.kpe_cache) * scale], -1).reshape(-1, 576)
    for b, n in enumerate(x.kv_len_arr):
        pages = x.kv_indices[x.kv_indptr[b] : x.kv_indptr[b + 1]]
        keys = cache[[pages[t // page] * page + t % page for t in range(n)]]
        for i in range(x.qo_indptr[b], x.qo_indptr[b + 1] if n else x.qo_indptr[b]):
            query = np.concatenate([f32(x.q_nope[i]), f32(x.q_pe[i])], -1)
            weights, total, _ = softmax_rows(query @ keys.T * np.float32(x.sm_scale))
            out[i] = (weights @ keys[:, :512] / total).astype(out.dtype)
    return {"out": out}
