"""The attention kernel gives its log-sum-exp in base e where base 2 is asked for."""

from honest import ragged

SOURCE = "https://github.com/sgl-project/sglang/pull/35045"
LINE = "trtllm_ragged_attention_deepseek Tq=24 Tk=40 N=4 Nk=4 D=192 Dv=128 B=2 --attr bmm1_scale=0.1352337788608801 --attr return_lse=true"
NAMES = r"other base|base e"


def kernel(x, wrong):
    return ragged(x, base_2=not wrong)
