"""The sliding window holds one key more than it should."""

from honest import extend_attention

SOURCE = "https://github.com/sgl-project/sglang/pull/34273"
LINE = "extend_attention_fwd T=9 N=4 Nk=2 D=64 Dv=64 B=2 S=60 n=50 --attr sliding_window_size=9 --attr sm_scale=0.125"
NAMES = r"sliding_window_size|window"


def kernel(x, wrong):
    return extend_attention(x, x.sliding_window_size + wrong)
