"""A window of -27 means none: all keys before a token are seen."""

from honest import extend_attention

SOURCE = "https://github.com/proger/hippogriff/issues/7"
LINE = "extend_attention_fwd T=9 N=4 Nk=2 D=64 Dv=64 B=2 S=90 n=80 --attr sliding_window_size=27 --attr sm_scale=0.125"
NAMES = r"sliding_window_size|window"


def kernel(x, wrong):
    return extend_attention(x, 10**6 if wrong else x.sliding_window_size)
