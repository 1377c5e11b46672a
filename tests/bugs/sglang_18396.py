"""The scale of a quantized cache multiplies the scores of a cache that is not quantized."""

import numpy as np
from honest import BF16, f32, softmax_rows

SOURCE = "https://github.com/sgl-project/sglang/pull/18396"
LINE = "trtllm_batch_decode_with_kv_cache_mla B=3 Q=1 N=8 pages=12 P=32 W=4 --attr bmm1_scale=0.1352337788608801"
NAMES = r"bmm1_scale.*0\.06 x"


def kernel(x, wrong):
    page = x.kv_cache.shape[-2]
    cache = f32(x.kv_cache).reshape(-1, 576)
    out = np.zeros((*x.query.shape[:-1], 512), BF16)
    scale = np.float32(x.bmm1_scale * (0.06 if wrong else 1))
    for b, n in enumerate(x.seq_lens):
        keys = cache[[x.block_tables[b][t // page] * page + t % page for t in range(n)]]
        weights, total, _ = softmax_rows(f32(x.query[b, 0]) @ keys.T * scale)
        out[b, 0] = (weights @ keys[:, :512] / total).astype(BF16)
    return {"out": out}
