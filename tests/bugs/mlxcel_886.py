"""Each expert's part is rounded to bf16 once it is multiplied with its weight, before the parts are added up."""

import numpy as np
from honest import BF16, f32, through

SOURCE = "https://github.com/lablup/mlxcel/issues/886"
LINE = "ep_gather R=40 D=256 T=9 topk=6"
NAMES = r"(rounded|bf16).*(part|term|product|before|each|sum)|(part|term|product).*(rounded|bf16)"


def kernel(x, wrong):
    out = np.zeros((len(x.recv_topk_ids), x.input_tensor.shape[1]), np.float32)
    for t, ids in enumerate(x.recv_topk_ids):
        for k, e in enumerate(ids):
            if e >= 0:
                part = f32(x.input_tensor[x.input_index[t, k]]) * x.recv_topk_weight[t, k]
                out[t] += through(BF16, part) if wrong else part
    return {"output_tensor": out.astype(x.input_tensor.dtype)}
