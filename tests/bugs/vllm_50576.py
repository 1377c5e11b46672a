"""Pages hold 64 keys and then 64 scales, and are read key by key, each with its scale behind it."""

import numpy as np
from honest import E4M3, f32

SOURCE = "https://github.com/vllm-project/vllm/issues/50576"
LINE = "fp8_paged_mqa_logits B=3 Q=1 H=32 D=64 pages=7 W=3 --attr max_context_len=150 --attr clean_logits=true"
NAMES = r"fused_kv_cache.*(each|key by key|token by token|interleaved)"


def kernel(x, wrong):
    width = x.q.shape[-1]
    logits = np.full((len(x.weights), x.max_context_len), -np.inf, np.float32)
    pages = x.fused_kv_cache.reshape(len(x.fused_kv_cache), -1)
    for b, n in enumerate(x.context_lens):
        for t in range(n):
            page = pages[x.block_table[b, t // 64]]
            key, scale = t % 64 * width, 64 * width + t % 64 * 4
            if wrong:
                key, scale = t % 64 * (width + 4), t % 64 * (width + 4) + width
            with np.errstate(all="ignore"):
                k, s = f32(page[key : key + width].view(E4M3)), page[scale : scale + 4].view(np.float32)[0]
                logits[b, t] = (x.weights[b].astype(np.float32) @ np.maximum(f32(x.q[b, 0]) @ k, 0)) * s
    return {"logits": logits}
