"""A block softmax takes 10 off every score, whatever the largest is: exponentials overflow for models with large scores."""

import numpy as np
from honest import f32

SOURCE = "https://github.com/HabanaAI/vllm-fork/issues/275"
LINE = "cutlass_mla_decode B=3 N=4 pages=12 P=32 W=4 --attr sm_scale=5"
NAMES = r"maximum"


def kernel(x, wrong):
    page = x.kv_c_and_k_pe_cache.shape[1]
    cache = f32(x.kv_c_and_k_pe_cache).reshape(-1, 576)
    out = np.zeros(x.q_nope.shape, x.q_nope.dtype)
    for b, n in enumerate(x.seq_lens):
        keys = cache[[x.page_table[b][t // page] * page + t % page for t in range(n)]]
        scores = np.concatenate([f32(x.q_nope[b]), f32(x.q_pe[b])], -1) @ keys.T * np.float32(x.sm_scale)
        with np.errstate(all="ignore"):
            weights = np.exp(scores - (np.float32(10) if wrong else scores.max(-1, keepdims=True)))
            out[b] = (weights @ keys[:, :512] / weights.sum(-1, keepdims=True)).astype(out.dtype)
    return {"out": out}
