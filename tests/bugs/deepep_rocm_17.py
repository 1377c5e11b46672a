"""The largest code is taken for 240, as on another vendor's e4m3."""

from honest import per_token_quant_fp8

SOURCE = "https://github.com/ROCm/DeepEP/issues/17"
LINE = "sgl_per_token_quant_fp8 M=16 K=512"
NAMES = r"240"


def kernel(x, wrong):
    return per_token_quant_fp8(x, limit=240 if wrong else 448)
