"""The sink is added where the maximum is still the placeholder of -100000: infinity, which another block's rescaling makes NaN."""

import numpy as np
from honest import extend_attention, f32

SOURCE = "https://github.com/NVIDIA/TensorRT-LLM/pull/19220"
LINE = "extend_attention_fwd T=20 N=4 Nk=2 D=64 Dv=64 B=2 S=120 n=80 --attr sliding_window_size=9 --attr sm_scale=0.125 --with sinks"
NAMES = r"sink|window|tile|no key"
UNNAMED = "NaN alone fails: which tile had no key the outputs do not tell"


def kernel(x, wrong):
    window, sinks = x.sliding_window_size, f32(x.sinks)

    def sink(prefix, at, most, h):
        end_of_first_tile = max(0, prefix - window) // 16 * 16 + 16
        empty = at - window >= end_of_first_tile
        return np.nan if wrong and empty else np.exp(sinks[h] - most)

    return extend_attention(x, window, more=sink)
