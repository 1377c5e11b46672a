"""The window is taken to hold the query's own key too, so that it has one key less."""

from honest import extend_attention

SOURCE = "https://github.com/lightseekorg/tokenspeed/pull/578"
LINE = "extend_attention_fwd T=12 N=4 Nk=2 D=64 Dv=64 B=2 S=60 n=50 --attr sliding_window_size=7 --attr sm_scale=0.125"
NAMES = r"sliding_window_size|window"


def kernel(x, wrong):
    return extend_attention(x, x.sliding_window_size - wrong)
