"""The window is handed on to a kernel that counts the query's own key apart: each query sees one key more."""

from honest import extend_attention

SOURCE = "https://github.com/zml/zml/pull/763"
LINE = "extend_attention_fwd T=12 N=4 Nk=2 D=64 Dv=64 B=3 S=80 n=60 --attr sliding_window_size=15 --attr sm_scale=0.125"
NAMES = r"sliding_window_size|window|more"


def kernel(x, wrong):
    return extend_attention(x, x.sliding_window_size + wrong)
