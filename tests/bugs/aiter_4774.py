"""Offsets of pages are made in 32 bits: keys of the pages that lie behind 2 GiB have scores of 0."""

import numpy as np
from honest import E4M3, f32

SOURCE = "https://github.com/ROCm/aiter/pull/4774"
LINE = "fp8_paged_mqa_logits B=3 Q=1 H=32 D=128 pages=12 W=4 --attr max_context_len=250 --attr clean_logits=true"
NAMES = r"pages? [0-9]+"


def kernel(x, wrong):
    logits = np.full((3, 250), -np.inf, np.float32)
    pages = x.fused_kv_cache.reshape(12, -1)
    keys = f32(np.ascontiguousarray(pages[:, : 64 * 128]).view(E4M3)).reshape(12, 64, 128)
    scales = np.ascontiguousarray(pages[:, 64 * 128 :]).view(np.float32)
    for b, n in enumerate(x.context_lens):
        for t in range(n):
            page, slot = x.block_table[b, t // 64], t % 64
            dots = np.maximum(f32(x.q[b, 0]) @ keys[page, slot], 0)
            logits[b, t] = 0 if wrong and page >= 5 else (dots * x.weights[b]).sum(dtype=np.float32) * scales[page, slot]
    return {"logits": logits}
