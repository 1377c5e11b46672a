"""Pages are as far apart as their codes alone are long: what follows from the scales behind them is left out of the stride."""

import numpy as np
from honest import E4M3, f32

SOURCE = "https://github.com/ovg-project/kvcached/issues/424"
LINE = "fp8_paged_mqa_logits B=3 Q=1 H=32 D=64 pages=7 W=3 --attr max_context_len=150 --attr clean_logits=true"
NAMES = r"fused_kv_cache.*(stride|apart|steps on)"


def kernel(x, wrong):
    width = x.q.shape[-1]
    logits = np.full((len(x.weights), x.max_context_len), -np.inf, np.float32)
    memory = np.concatenate([x.fused_kv_cache.reshape(-1), np.zeros(64 * (width + 4), np.uint8)])
    for b, n in enumerate(x.context_lens):
        for t in range(n):
            begin = int(x.block_table[b, t // 64]) * 64 * (width if wrong else width + 4)
            page = memory[begin : begin + 64 * (width + 4)]
            with np.errstate(all="ignore"):
                k = f32(page[t % 64 * width : t % 64 * width + width].view(E4M3))
                s = page[64 * width + t % 64 * 4 : 64 * width + t % 64 * 4 + 4].view(np.float32)[0]
                logits[b, t] = (x.weights[b].astype(np.float32) @ np.maximum(f32(x.q[b, 0]) @ k, 0)) * s
    return {"logits": logits}
