"""As many blocks of 256 columns are launched as whole ones fit: what is left of a row stays zero."""

import numpy as np
from honest import BF16, f32

SOURCE = "https://github.com/vllm-project/vllm/pull/49087"
LINE = "moe_sum_reduce T=5 topk=6 D=700 --attr routed_scaling_factor=1"
NAMES = r"(columns 512\.\.699|256).*|not (written|computed|launched)"


def kernel(x, wrong):
    out = f32(x.input_tensor).sum(1, dtype=np.float32)
    if wrong:
        out[:, out.shape[1] // 256 * 256 :] = 0
    return {"output_tensor": out.astype(BF16)}
