"""Scales are made for a largest code of 224, whatever the device: half of the codes are never used."""

from honest import per_token_group_quant_fp8

SOURCE = "https://github.com/sgl-project/sglang/pull/30900"
LINE = "sgl_per_token_group_quant_8bit M=8 K=512"
NAMES = r"224|fp8_max|twice|doubled|2 x"


def kernel(x, wrong):
    return per_token_group_quant_fp8(x, limit=224 if wrong else 448)
