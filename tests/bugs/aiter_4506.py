"""Scales are written by columns and handed on as if by rows: a view in the place of a transpose."""

from honest import per_token_group_quant_fp8

SOURCE = "https://github.com/ROCm/aiter/pull/4506"
LINE = "sgl_per_token_group_quant_fp8 M=24 K=1024"
NAMES = r"output_s.*(transpos|column|other way|order)"


def kernel(x, wrong):
    out = per_token_group_quant_fp8(x)
    if wrong:
        out["output_s"] = out["output_s"].T.reshape(out["output_s"].shape).copy()
    return out
