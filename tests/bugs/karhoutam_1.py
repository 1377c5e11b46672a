"""Threads of a warp add their sums up as they are, though each was made with the thread's own maximum."""

import numpy as np

SOURCE = "https://github.com/KarhouTam/cuda-kernels/issues/1"
LINE = "softmax B=8 V=1000"
NAMES = r"rescal|own maxim|maxim.*(own|part|each)|not brought"


def kernel(x, wrong):
    out = np.zeros_like(x.logits)
    for b, row in enumerate(x.logits):
        most = row.max()
        if wrong:
            total = np.float32(sum(np.exp(row[lane::32] - row[lane::32].max()).sum(dtype=np.float32) for lane in range(32)))
        else:
            total = np.exp(row - most).sum(dtype=np.float32)
        out[b] = np.exp(row - most) / total
    return {"probs": out}
