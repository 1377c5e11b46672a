"""Weights of the second tile are read before all were written: some heads still have those of the tile before."""

import numpy as np
from honest import BF16, f32, softmax_rows

SOURCE = "https://github.com/pengcuo/FlashMLA-ETAP/issues/1"
LINE = "flash_mla_with_kvcache B=6 Q=1 N=8 pages=24 W=4 parts=4 --attr softmax_scale=0.07"
NAMES = r"(weights?|keys?).*(64|tile)|tile"


def kernel(x, wrong):
    cache = f32(x.k_cache).reshape(-1, 576)
    out, lse = np.zeros((6, 1, 8, 512), BF16), np.full((6, 8, 1), np.inf, np.float32)
    for b, n in enumerate(x.cache_seqlens):
        keys = cache[[x.block_table[b][t // 64] * 64 + t % 64 for t in range(n)]]
        weights, total, most = softmax_rows(f32(x.q[b, 0]) @ keys.T * np.float32(x.softmax_scale))
        used = weights.copy()
        if wrong and n >= 128:
            used[4:, 64:128] = weights[4:, :64]
        out[b, 0] = (used @ keys[:, :512] / total).astype(BF16)
        lse[b, :, 0] = (most + np.log(total))[:, 0]
    return {"out": out, "softmax_lse": lse}
