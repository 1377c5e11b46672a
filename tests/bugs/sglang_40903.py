"""Log-sum-exps in base 2 are merged as if they were natural ones."""

from honest import merge_state

SOURCE = "https://github.com/sgl-project/sglang/issues/40903"
LINE = "merge_state T=16 N=4 D=64"
NAMES = r"other base"


def kernel(x, wrong):
    return merge_state(x, base_2=not wrong)
