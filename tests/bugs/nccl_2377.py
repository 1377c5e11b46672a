"""Parts are put in the order of the heads that brought them, not of the ranks that they are of."""

import numpy as np

SOURCE = "https://github.com/NVIDIA/nccl/pull/2377"
LINE = "all_gather_into_tensor R=4 T=6 H=64"
NAMES = r"(rows|rank|part|block)s?.*(exchanged|permut|order|another|taken|holds|swapped)"


def kernel(x, wrong):
    parts = np.asarray(x.input)[[2, 0, 3, 1]] if wrong else np.asarray(x.input)
    return {"output": parts.reshape(24, 64)}
