"""The begin of a request is counted twice in the row of the mask: requests behind the first have another one's mask."""

import numpy as np
from honest import f32, softmax_rows

SOURCE = "https://github.com/invergent-ai/surogate/issues/110"
LINE = "extend_attention_fwd T=9 N=4 Nk=2 D=64 Dv=64 B=3 S=60 n=40 masked=600 --with custom_mask --with mask_indptr --attr skip_prefix_custom_mask=false"
NAMES = r"custom_mask|mask_indptr"


def edit(inputs):
    """Three requests of three tokens each."""
    ends = np.array(inputs["kv_indptr"])
    widths = (np.diff(ends) + 3) * 3
    return {"qo_indptr": np.array([0, 3, 6, 9], np.int32), "mask_indptr": np.concatenate([[0], np.cumsum(widths)]).astype(inputs["mask_indptr"].dtype)}


def kernel(x, wrong):
    out = np.zeros((*x.q_extend.shape[:2], 64), x.q_extend.dtype)
    for b in range(3):
        first, end = x.qo_indptr[b], x.qo_indptr[b + 1]
        slots = x.kv_indices[x.kv_indptr[b] : x.kv_indptr[b + 1]]
        width = len(slots) + end - first
        for h in range(4):
            keys = np.concatenate([f32(x.k_buffer[slots, h // 2]), f32(x.k_extend[first:end, h // 2])])
            values = np.concatenate([f32(x.v_buffer[slots, h // 2]), f32(x.v_extend[first:end, h // 2])])
            for i in range(end - first):
                begin = int(x.mask_indptr[b]) * (2 if wrong else 1) + i * width
                seen = np.resize(x.custom_mask, 2000)[begin : begin + width].astype(np.uint8) & 1 != 0
                scores = np.where(seen, keys @ f32(x.q_extend[first + i, h]) * np.float32(0.125), np.float32(-np.inf))
                if seen.any():
                    weights, total, _ = softmax_rows(scores)
                    out[first + i, h] = (weights @ values / total).astype(out.dtype)
    return {"o_extend": out}
