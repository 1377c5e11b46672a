"""The sink is scaled as scores are, though it is a score already."""

import numpy as np
from honest import decode_attention

SOURCE = "https://github.com/ROCm/rocm-libraries/pull/12229"
LINE = "decode_attention_fwd B=2 N=16 Nk=1 S=60 n=50 D=576 --with sinks --attr v_is_slice_of_k=true --attr sm_scale=0.0721687836 --without v_buffer"
NAMES = r"sinks?.*(scale|multiplied)"


def kernel(x, wrong):
    return decode_attention(x, more=lambda most, sink: np.exp(sink * (x.sm_scale if wrong else 1) - most))
