"""Weighted values are added up in bf16, key by key."""

import numpy as np
from honest import BF16, f32, softmax_rows, through

SOURCE = "https://github.com/Xilinx/mlir-air/pull/1606"
LINE = "decode_attention_fwd B=3 N=8 Nk=2 S=200 n=300 D=64 --attr v_head_dim=64 --attr sm_scale=0.125"
NAMES = r"bf16"
UNNAMED = "how a sum of rounded numbers comes out depends on where each of them is rounded"


def kernel(x, wrong):
    out = np.zeros(x.q.shape, x.q.dtype)
    for b in range(3):
        slots = x.kv_indices[x.kv_indptr[b] : x.kv_indptr[b + 1]]
        for h in range(8):
            weights, total, _ = softmax_rows(f32(x.k_buffer[slots, h // 4]) @ f32(x.q[b, h]) * np.float32(0.125))
            values = f32(x.v_buffer[slots, h // 4])
            if wrong:
                acc, shares = np.zeros(64, np.float32), through(BF16, weights / total)
                for t in range(len(slots)):
                    acc = through(BF16, acc + shares[t] * values[t])
            else:
                acc = weights @ values / total
            out[b, h] = acc.astype(out.dtype)
    return {"o": out}
