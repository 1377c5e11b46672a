"""A request's first key is counted in its queries: those of the requests before it, not their keys."""

import numpy as np
from honest import f32

SOURCE = "https://github.com/sgl-project/sglang/pull/12583"
LINE = "fp8_mqa_logits M=6 H=32 D=64 N=100"
NAMES = r"cu_seq_len_k"



def edit(inputs):
    return {"cu_seq_len_k_start": np.array([0, 0, 0, 40, 40, 70], np.int32), "cu_seq_len_k_end": np.array([38, 39, 40, 69, 70, 100], np.int32)}


def kernel(x, wrong):
    start = np.array([0, 0, 0, 3, 3, 5]) if wrong else x.cu_seq_len_k_start
    end = start + x.cu_seq_len_k_end - x.cu_seq_len_k_start
    logits = np.full((len(x.q), len(x.kv)), -np.inf, np.float32)
    for m in range(len(x.q)):
        scores = np.maximum(f32(x.q[m]) @ f32(x.kv).T, 0)
        logits[m, start[m] : end[m]] = (x.weights[m].astype(np.float32) @ scores * x.kv_sf)[start[m] : end[m]]
    return {"logits": logits}
