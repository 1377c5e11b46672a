"""The layer's factor, which follows behind all ranks' sums, is put into the weights here as well."""

import numpy as np
from honest import F32, f32

SOURCE = "https://github.com/sgl-project/sglang/pull/33669"
LINE = "deepep_post_reorder_triton_kernel R=96 D=128 T=12 topk=8"
NAMES = r"2\.5"


def kernel(x, wrong):
    out = np.zeros((12, 128), F32)
    for t in range(12):
        for k in range(8):
            if x.src2dst[t, k] >= 0:
                weight = f32((x.topk_weights[t, k] * F32(2.5 if wrong else 1)).astype(x.down_output.dtype))
                out[t] = f32((out[t] + f32(x.down_output[x.src2dst[t, k]]) * weight).astype(x.down_output.dtype))
    return {"output": out.astype(x.down_output.dtype)}
