"""The diagonal of the causal mask is that of the longest request's queries and keys, for all requests."""

import numpy as np
from honest import ragged

SOURCE = "https://github.com/ROCm/rocm-libraries/pull/10999"
LINE = "trtllm_ragged_attention_deepseek Tq=12 Tk=60 N=2 Nk=2 D=128 Dv=128 B=3 --attr bmm1_scale=0.09"
NAMES = r"(mask|diagonal|causal|keys?).*(longest|max|largest|one request|all requests|every request)"


def edit(inputs):
    return {
        "cum_seq_lens_q": np.array([0, 3, 9, 12], np.int32),
        "cum_seq_lens_kv": np.array([0, 12, 42, 60], np.int32),
        "seq_lens": np.array([12, 30, 18], np.int32),
    }


def kernel(x, wrong):
    offset = int(np.diff(x.cum_seq_lens_kv).max() - np.diff(x.cum_seq_lens_q).max())
    last = lambda i, tq, tk: min(tk, i + (offset if wrong else tk - tq) + 1)
    return {"out": ragged(x, last=last)["out"]}
