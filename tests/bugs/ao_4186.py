"""Lanes behind the last row store a scale too, and where scales lie by columns that is over the next column's first rows."""

import numpy as np
from honest import per_token_group_quant_fp8

SOURCE = "https://github.com/pytorch/ao/pull/4186"
LINE = "sgl_per_token_group_quant_fp8 M=27 K=1024"
NAMES = r"output_s.*(behind|over the next|lanes)"
UNNAMED = "what lanes behind the last row hold is the kernel's own"


def kernel(x, wrong):
    out = per_token_group_quant_fp8(x)
    if wrong:  # tiles of 16 rows: five lanes behind row 26
        flat = np.ascontiguousarray(out["output_s"].T).reshape(-1)
        for column in range(7):
            at = column * 27 + 27
            flat[at : at + 5] = np.float32(1e-10) / np.float32(448)
        out["output_s"] = flat.reshape(8, 27).T.copy()
    return out
