"""The maximum behind the log-sum-exp is scaled without YaRN's factor, the sum with it."""

from honest import ragged

SOURCE = "https://github.com/NVIDIA/TensorRT-LLM/pull/19112"
LINE = "trtllm_ragged_attention_deepseek Tq=24 Tk=40 N=4 Nk=4 D=192 Dv=128 B=2 --attr bmm1_scale=0.1352337788608801 --attr return_lse=true"
NAMES = r"YaRN.*maximum|maximum.*YaRN"
UNNAMED = "one kernel's own bookkeeping"


def kernel(x, wrong):
    return ragged(x, most_scale=x.bmm1_scale / 1.8738542070926265 if wrong else None)
