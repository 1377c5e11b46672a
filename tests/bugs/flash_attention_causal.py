"""Causal masks are aligned to the first key, not to the last, where there are more keys than queries."""

from honest import ragged

SOURCE = "https://github.com/Dao-AILab/flash-attention#21-change-behavior-of-causal-flag"
LINE = "trtllm_ragged_attention_deepseek Tq=24 Tk=40 N=4 Nk=4 D=192 Dv=128 B=2 --attr bmm1_scale=0.1352337788608801 --attr return_lse=true"
NAMES = r"causal mask"


def kernel(x, wrong):
    return ragged(x, last=lambda i, tq, tk: i + 1 if wrong else i + tk - tq + 1)
