"""The best of each lane is not compared with the other lanes': lane 0's, of every 32nd score, is taken."""

import numpy as np

SOURCE = "https://github.com/intel/intel-xpu-backend-for-triton/issues/7458"
LINE = "fast_topk T=6 V=512 --attr topk=1"
NAMES = r"32|lane|part of|every|first"


def kernel(x, wrong):
    seen = x.values[:, ::32] if wrong else x.values
    at = seen.argmax(-1)
    return {"out_values": np.take_along_axis(seen, at[:, None], 1), "indices": (at * (32 if wrong else 1))[:, None].astype(np.int64)}
