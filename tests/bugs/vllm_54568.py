"""Sinks are not handed on to the kernel."""

import numpy as np
from honest import decode_attention

SOURCE = "https://github.com/vllm-project/vllm/pull/54568"
LINE = "decode_attention_fwd B=2 N=16 Nk=1 S=60 n=50 D=576 --with sinks --attr v_is_slice_of_k=true --attr sm_scale=0.0721687836 --without v_buffer"
NAMES = r"sink"


def kernel(x, wrong):
    return decode_attention(x, more=lambda most, sink: 0 if wrong else np.exp(sink - most))
