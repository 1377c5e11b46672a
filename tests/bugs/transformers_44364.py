"""Scores of the indexer are weighted and added up over the heads without the ReLU: negative ones count."""

import numpy as np
from honest import f32

SOURCE = "https://github.com/huggingface/transformers/pull/44364"
LINE = "fp8_mqa_logits M=4 H=32 D=64 N=90"
NAMES = r"negative products|relu"


def kernel(x, wrong):
    logits = np.full((len(x.q), len(x.kv)), -np.inf, np.float32)
    for m in range(len(x.q)):
        keys = slice(x.cu_seq_len_k_start[m], x.cu_seq_len_k_end[m])
        scores = f32(x.q[m]) @ f32(x.kv[keys]).T
        logits[m, keys] = f32(x.weights[m]) @ (scores if wrong else np.maximum(scores, 0)) * x.kv_sf[keys]
    return {"logits": logits}
