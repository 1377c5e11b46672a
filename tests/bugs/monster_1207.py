"""Of eight microtiles of each tile of K the first alone is added: an eighth of the sum."""

import numpy as np
from honest import scaled_mm, with_lines

SOURCE = "https://github.com/1bit-MONSTER/1bit-MONSTER/issues/1205"
LINE = "int8_scaled_mm M=16 N=64 K=512"
NAMES = r"along K|K.*(first|8|of each)"


def kernel(x, wrong):
    if wrong:
        a = x.mat_a.copy()
        a[:, np.arange(512) % 64 >= 8] = 0
        x = with_lines(x, mat_a=a)
    return scaled_mm(x)
