"""The window reaches as far ahead as back: a query sees later new tokens too."""

from honest import extend_attention

SOURCE = "https://github.com/ModelTC/LightLLM/pull/1311"
LINE = "extend_attention_fwd T=20 N=4 Nk=2 D=64 Dv=64 B=2 S=60 n=30 --attr sliding_window_size=5 --attr sm_scale=0.125"
NAMES = r"causal|later|ahead|behind (it|them|each)|following|future|new tokens"


def kernel(x, wrong):
    w = x.sliding_window_size
    return extend_attention(x, near=lambda at, prefix, keys: slice(max(0, at - w), at + 1 + wrong * w))
