"""Slots of experts that are not here are added too: the ids that are asked are those of all ranks."""

import numpy as np
from honest import f32

SOURCE = "https://github.com/sgl-project/sglang/pull/8752"
LINE = "post_reorder_for_cutlass_moe R=24 D=256 T=6 topk=4 --attr num_local_experts=4 --attr routed_scaling_factor=2.5"
NAMES = r"topk_ids|no expert|not here|absent"


def kernel(x, wrong):
    out = np.zeros((len(x.topk_ids), x.down_output.shape[1]), np.float32)
    for t, ids in enumerate(x.topk_ids):
        for k, e in enumerate(ids):
            if wrong or e != x.num_local_experts:
                row = int(x.src2dst[t, k])
                out[t] += f32(x.down_output[row if 0 <= row < len(x.down_output) else 0]) * x.topk_weights[t, k]
    return {"output": (out * np.float32(x.routed_scaling_factor)).astype(x.down_output.dtype)}
