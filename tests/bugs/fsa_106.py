"""Of each split the logarithm of its sum has the maximum scaled twice: splits are weighed as if their maxima were smaller."""

import numpy as np
from honest import F32, decode_attention, f32, softmax_rows

SOURCE = "https://github.com/HKUSTDial/flash-sparse-attention/pull/106"
LINE = "decode_attention_fwd B=3 N=4 Nk=2 S=300 n=250 D=64 --attr v_head_dim=64 --attr sm_scale=0.125"
NAMES = r"split|maxim|rescaled|scale"


def kernel(x, wrong):
    if not wrong:
        return decode_attention(x)
    out = np.zeros((3, 4, 64), x.q.dtype)
    for b in range(3):
        slots = x.kv_indices[x.kv_indptr[b] : x.kv_indptr[b + 1]]
        for h in range(4):
            parts, logs = [], []
            for part in np.array_split(slots, 4):
                if len(part) == 0:
                    continue
                weights, total, most = softmax_rows(f32(x.k_buffer[part, h // 2]) @ f32(x.q[b, h]) * F32(0.125))
                parts.append(weights @ f32(x.v_buffer[part, h // 2]) / total)
                logs.append(most[0] * F32(0.125) + np.log(total[0]))
            share, total, _ = softmax_rows(np.array(logs, F32))
            out[b, h] = (share @ np.array(parts, F32) / total).astype(out.dtype)
    return {"o": out}
