"""Decoding is called without the window's size: all of the prefix counts."""

from honest import extend_attention

SOURCE = "https://github.com/EricLBuehler/mistral.rs/issues/2094"
LINE = "extend_attention_fwd T=4 N=4 Nk=2 D=64 Dv=64 B=4 S=120 n=100 --attr sliding_window_size=12 --attr sm_scale=0.125"
NAMES = r"sliding_window_size|window"


def kernel(x, wrong):
    return extend_attention(x, 10**6 if wrong else x.sliding_window_size)
