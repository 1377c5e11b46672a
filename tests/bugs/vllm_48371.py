"""Slots of no expert here, -1, are not skipped: they read the row that the last entry of a table names, and it counts."""

import numpy as np
from honest import f32

SOURCE = "https://github.com/vllm-project/vllm/pull/48371"
LINE = "ep_gather R=40 D=128 T=9 topk=6"
NAMES = r"recv_topk_ids|another rank|-1"


def edit(inputs):
    ids = inputs["recv_topk_ids"].copy()
    ids[1::3, 2::2] = -1
    return {"recv_topk_ids": ids}


def kernel(x, wrong):
    out = np.zeros((len(x.recv_topk_ids), x.input_tensor.shape[1]), np.float32)
    for t, ids in enumerate(x.recv_topk_ids):
        for k, e in enumerate(ids):
            if e >= 0 or wrong:
                out[t] += f32(x.input_tensor[x.input_index[t, k]]) * x.recv_topk_weight[t, k]
    return {"output_tensor": out.astype(x.input_tensor.dtype)}
