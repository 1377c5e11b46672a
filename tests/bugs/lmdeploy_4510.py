"""Keys come out of a cache smaller by the root of two: their width is counted twice."""

from honest import decode_attention, with_lines

import numpy as np

SOURCE = "https://github.com/InternLM/lmdeploy/pull/4510"
LINE = "decode_attention_fwd B=4 N=8 Nk=2 S=200 n=300 D=64 --attr v_head_dim=64 --attr sm_scale=0.125"
NAMES = r"0\.707|root of 2|root of two|sqrt"
UNNAMED = "a factor of keys is one of the scores' scale too"


def kernel(x, wrong):
    return decode_attention(with_lines(x, sm_scale=x.sm_scale * (np.sqrt(0.5) if wrong else 1.0)))
