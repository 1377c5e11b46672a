"""Splits are merged by log-sum-exps that nobody stored: as if all were equal."""

import numpy as np
from honest import f32, softmax_rows

SOURCE = "https://github.com/flashinfer-ai/flashinfer/pull/50"
LINE = "decode_attention_fwd B=3 N=4 Nk=2 S=120 n=150 D=64 --attr v_head_dim=64 --attr sm_scale=0.25"
NAMES = r"split.*(equal|same|mean|average|weight)|(equal|mean).*split|(log-sum-exp|lse).*(not|equal)"


def kernel(x, wrong):
    out = np.zeros((3, 4, 64), x.q.dtype)
    for b in range(3):
        slots = x.kv_indices[x.kv_indptr[b] : x.kv_indptr[b + 1]]
        parts = np.array_split(slots, 4) if wrong else [slots]
        for h in range(4):
            done = []
            for part in parts:
                if len(part):
                    weights, total, _ = softmax_rows(f32(x.k_buffer[part, h // 2]) @ f32(x.q[b, h]) * np.float32(x.sm_scale))
                    done.append(weights @ f32(x.v_buffer[part, h // 2]) / total)
            out[b, h] = np.mean(done, 0).astype(out.dtype)
    return {"o": out}
