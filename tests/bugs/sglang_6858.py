"""Rows are copied in vectors of 8 numbers: what is left of one that is no multiple of them is not."""

import numpy as np
from honest import e4m3, f32

SOURCE = "https://github.com/sgl-project/sglang/pull/6858"
LINE = "pre_reorder_for_cutlass_moe T=5 H=76 topk=2 R=12 --attr num_local_experts=9"
NAMES = r"columns 72|tail"


def kernel(x, wrong):
    out = np.zeros((12, x.input.shape[1]), e4m3(np.zeros(1)).dtype)
    end = x.input.shape[1] // 8 * 8 if wrong else x.input.shape[1]
    for t, ids in enumerate(x.topk_ids):
        for k, e in enumerate(ids):
            if e != x.num_local_experts:
                out[x.src2dst[t, k], :end] = e4m3(f32(x.input[t]) * (np.float32(1) / x.a1_scales[0]))[:end]
    return {"gateup_input": out}
