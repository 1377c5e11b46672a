"""The kernel of extensions takes it that another pass masked: new tokens see those behind them."""

from honest import extend_attention

SOURCE = "https://github.com/lightseekorg/tokenspeed/pull/271"
LINE = "extend_attention_fwd T=14 N=4 Nk=2 D=64 Dv=64 B=2 S=90 n=50 --attr sm_scale=0.125"
NAMES = r"causal"


def kernel(x, wrong):
    return extend_attention(x, near=lambda at, prefix, keys: slice(0, keys if wrong else at + 1))
