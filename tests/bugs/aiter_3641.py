"""Splits without keys are merged with a log-sum-exp of 0: each adds a term to the sum of the weights."""

import numpy as np
from honest import decode_attention

SOURCE = "https://github.com/ROCm/aiter/pull/3641"
LINE = "decode_attention_fwd B=2 N=4 Nk=2 S=90 n=20 D=192 --attr v_head_dim=128 --attr sm_scale=0.0721687836"
NAMES = r"(splits?|tiles?) without keys|empty"


def kernel(x, wrong):
    return decode_attention(x, more=lambda most, sink: np.exp(-most) * 3 if wrong else 0)
