"""What is less than zero of eight bits is read as if it had no sign: 256 too much."""

import numpy as np
from honest import qserve_per_group, with_lines

SOURCE = "https://github.com/vllm-project/vllm/issues/48905"
LINE = "qserve_w4a8_per_group_gemm M=12 N=64 K=256"
NAMES = r"zeros|sign"
UNNAMED = "no operand of eight bits holds what is read"


def kernel(x, wrong):
    if wrong:
        x = with_lines(x, zeros=x.zeros.view(np.uint8).astype(np.int32))
    return qserve_per_group(x, (lambda w: w) if wrong else (lambda w: w.astype(np.int8)))
