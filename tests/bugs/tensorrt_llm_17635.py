"""Without a least maximum a group of zeros is divided by zero."""

from honest import per_token_group_quant_fp8

SOURCE = "https://github.com/NVIDIA/TensorRT-LLM/issues/17635"
LINE = "sgl_per_token_group_quant_fp8 M=16 K=512"
NAMES = r"eps=0|0/0|zero"


def edit(inputs):
    a = inputs["input"].copy()
    a[3, 128:256] = 0
    return {"input": a}


def kernel(x, wrong):
    return per_token_group_quant_fp8(x, least=0 if wrong else 1e-10)
