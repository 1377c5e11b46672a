"""The cap's tanh is made of exp(2x), which overflows where scores are far beyond the cap: infinity by infinity."""

import numpy as np
from honest import F32, f32, softmax_rows

SOURCE = "https://github.com/vllm-project/vllm/issues/56578"
LINE = "decode_attention_fwd B=3 N=4 Nk=2 S=60 n=90 D=64 --attr v_head_dim=64 --attr sm_scale=1 --attr logit_cap=5"
NAMES = r"NaN|tanh|cap"


def edit(inputs):  # one head of one request has scores of hundreds
    q = inputs["q"].copy()
    q[1, 2] = (f32(q[1, 2]) * 60).astype(q.dtype)
    return {"q": q}


def kernel(x, wrong):
    out = np.zeros((*x.q.shape[:2], 64), x.q.dtype)
    for b in range(len(x.q)):
        slots = x.kv_indices[x.kv_indptr[b] : x.kv_indptr[b + 1]]
        for h in range(x.q.shape[1]):
            scores = f32(x.k_buffer[slots, h // 2]) @ f32(x.q[b, h]) / F32(x.logit_cap)
            with np.errstate(all="ignore"):
                double = np.exp(2 * scores)
                tanh = (double - 1) / (double + 1) if wrong else np.tanh(scores)
                weights, total, _ = softmax_rows(F32(x.logit_cap) * tanh)
                out[b, h] = (weights @ f32(x.v_buffer[slots, h // 2]) / total).astype(out.dtype)
    return {"o": out}
