"""Rows are stored one element apart: they overlap, and of each row the first code alone is left, but of the last."""

import numpy as np
from honest import E4M3, per_token_quant_fp8

SOURCE = "https://github.com/pytorch/ao/pull/4900"
LINE = "sgl_per_token_quant_fp8 M=6 K=512"
NAMES = r"(output_q|rows).*(stride|apart|overlap|step)"


def kernel(x, wrong):
    out = per_token_quant_fp8(x)
    if wrong:
        rows = out["output_q"]
        memory = np.zeros(rows.size, E4M3)
        for row in range(len(rows)):
            memory[row : row + rows.shape[1]] = rows[row]
        out["output_q"] = memory.reshape(rows.shape)
    return out
