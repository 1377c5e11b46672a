"""Experts of a token write its row one after the other instead of adding to it: the last one's part alone is left."""

import numpy as np
from honest import f32

SOURCE = "https://github.com/deepseek-ai/DeepSeek-V3/issues/942"
LINE = "ep_gather R=40 D=128 T=9 topk=6"
NAMES = r"(last|all but|one).*(expert|slot|choice|topk|added|alone)|along topk"


def kernel(x, wrong):
    out = np.zeros((len(x.recv_topk_ids), x.input_tensor.shape[1]), np.float32)
    for t, ids in enumerate(x.recv_topk_ids):
        for k, e in enumerate(ids):
            if e >= 0:
                part = f32(x.input_tensor[x.input_index[t, k]]) * x.recv_topk_weight[t, k]
                out[t] = part if wrong else out[t] + part
    return {"output_tensor": out.astype(x.input_tensor.dtype)}
