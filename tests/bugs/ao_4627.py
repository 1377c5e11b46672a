"""Scales of a tile's rows beyond the last one are stored too: they land on the next column's first rows."""

import numpy as np
from honest import per_token_group_quant_fp8

SOURCE = "https://github.com/pytorch/ao/pull/4627"
LINE = "sgl_per_token_group_quant_fp8 M=27 K=1024"
NAMES = r"output_s.*(rows? 0|rows? 0\.\.4|before|first (5|rows)|1e-10|none|0 to 4)|(first|rows? 0).*output_s"


def kernel(x, wrong):
    out = per_token_group_quant_fp8(x)
    if wrong:
        out["output_s"] = out["output_s"].copy()
        out["output_s"][:5, 1:] = np.float32(1e-10) / np.float32(448)
    return out
