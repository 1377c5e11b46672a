"""Requests without keys: outputs and log-sum-exps of their queries are not written."""

import numpy as np
from honest import ragged

SOURCE = "https://github.com/flashinfer-ai/flashinfer/issues/3047"
LINE = "trtllm_ragged_attention_deepseek Tq=24 Tk=40 N=4 Nk=4 D=192 Dv=128 B=4 --attr bmm1_scale=0.1352337788608801 --attr return_lse=true --attr is_causal=false"
NAMES = r"no keys|without keys"


def edit(inputs):
    return {
        "seq_lens": np.array([16, 0, 24, 0], np.int32),
        "cum_seq_lens_q": np.array([0, 6, 13, 20, 24], np.int32),
        "cum_seq_lens_kv": np.array([0, 16, 16, 40, 40], np.int32),
    }


def kernel(x, wrong):
    outputs = ragged(x, last=lambda i, tq, tk: tk)
    if wrong:
        for b, n in enumerate(x.seq_lens):
            if n == 0:
                outputs["lse"][x.cum_seq_lens_q[b] : x.cum_seq_lens_q[b + 1]] = 0
                outputs["out"][x.cum_seq_lens_q[b] : x.cum_seq_lens_q[b + 1]] = 0.37
    return outputs
