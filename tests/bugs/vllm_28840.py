"""Log-sum-exps in base e are merged as if they were in base 2."""

from honest import merge_state

SOURCE = "https://github.com/vllm-project/vllm/pull/28840"
LINE = "merge_state_v2 T=16 N=4 D=64"
NAMES = r"other base"


def kernel(x, wrong):
    return merge_state(x, base_2=wrong)
