"""Groups are quantized to a largest code of 240, and read with scales for 448."""

from honest import per_token_group_quant_fp8

SOURCE = "https://github.com/vllm-project/vllm/issues/42893"
LINE = "sgl_per_token_group_quant_fp8 M=16 K=512"
NAMES = r"240"


def kernel(x, wrong):
    return per_token_group_quant_fp8(x, limit=240 if wrong else 448)
