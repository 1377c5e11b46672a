"""Numbers of the columns are made for half of the vocabulary: those of the second half count from 0 again."""

import numpy as np
from honest import f32, largest

SOURCE = "https://github.com/tenstorrent/tt-metal/issues/52928"
LINE = "fast_topk T=7 V=1024 --attr topk=8"
NAMES = r"half|512|second"


def kernel(x, wrong):
    ids = largest(f32(x.values), x.topk)
    values = np.take_along_axis(x.values, ids, -1)
    return {"out_values": values, "indices": (ids % 512 if wrong else ids).astype(np.int64)}
