"""Queries of 8 bits are multiplied with keys of 8 bits, and neither is multiplied with its scale."""

import numpy as np
from honest import BF16, f32, softmax_rows

SOURCE = "https://github.com/vllm-project/vllm/pull/42080"
LINE = (
    "flash_mla_with_kvcache B=2 Q=1 N=4 pages=5 W=2 parts=3 --attr softmax_scale=0.0005 --attr causal=true "
    "--dtype q=f8_e4m3 --with descale_q --with descale_k"
)
NAMES = r"descale_q|descale_k"


def kernel(x, wrong):
    cache = f32(x.k_cache).reshape(-1, 576)
    batch, queries, heads, _ = x.q.shape
    out = np.zeros((batch, queries, heads, 512), BF16)
    lse = np.full((batch, heads, queries), np.inf, np.float32)
    scale = np.float32(x.softmax_scale) * (1 if wrong else x.descale_q[0] * x.descale_k[0])
    for b, n in enumerate(x.cache_seqlens):
        keys = cache[[x.block_table[b][t // 64] * 64 + t % 64 for t in range(n)]]
        if n:
            weights, total, most = softmax_rows(f32(x.q[b, 0]) @ keys.T * scale)
            out[b, 0] = (weights @ keys[:, :512] / total * x.descale_k[0]).astype(BF16)
            lse[b, :, 0] = (most + np.log(total))[:, 0]
    return {"out": out, "softmax_lse": lse}
