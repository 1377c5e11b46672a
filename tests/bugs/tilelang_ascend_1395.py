"""Elements of a fragment are taken as 16 whatever the type: of eight bits the second half of K is read at half its way."""

import numpy as np
from honest import scaled_mm

SOURCE = "https://github.com/tile-ai/tilelang-ascend/issues/1395"
LINE = "int8_scaled_mm M=32 N=64 K=256"
NAMES = r"mat_b.*(K|depth).*(64|half|earlier|/ 2|stands)"


def kernel(x, wrong):
    if not wrong:
        return scaled_mm(x)
    b = np.array(x.mat_b)
    b[128:] = x.mat_b[64:192]
    return scaled_mm(x, mat_b=b)
