"""A block softmax takes 10 off every score, whatever the largest is: exponentials overflow for models with large scores."""

import numpy as np
from honest import scores_of_mla

SOURCE = "https://github.com/HabanaAI/vllm-fork/issues/275"
LINE = "cutlass_mla_decode B=3 N=4 pages=12 P=32 W=4 --attr sm_scale=5"
NAMES = r"maximum"


def kernel(x, wrong):
    out = np.zeros(x.q_nope.shape, x.q_nope.dtype)
    for b, keys, scores in scores_of_mla(x):
        with np.errstate(all="ignore"):
            weights = np.exp(scores - (np.float32(10) if wrong else scores.max(-1, keepdims=True)))
            out[b] = (weights @ keys[:, :512] / weights.sum(-1, keepdims=True)).astype(out.dtype)
    return {"out": out}
