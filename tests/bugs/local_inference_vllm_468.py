"""The merged log-sum-exp is written over the first one before all blocks have read it: what they hold of a head is merged twice."""

import numpy as np
from honest import f32, merge_state

SOURCE = "https://github.com/local-inference-lab/vllm/pull/468"
LINE = "merge_state_v2 T=16 N=4 D=192"
NAMES = r"tail of the rows"


def kernel(x, wrong):
    outputs = merge_state(x, base_2=False)
    if wrong:
        a, b = np.exp(outputs["s_merged"]), np.exp(x.s_b)
        late = f32(x.v_a) * (a / (a + b))[..., None] + f32(x.v_b) * (b / (a + b))[..., None]
        threads = np.arange(16 * 4 * 24)  # of 128 a block, 24 a head
        behind = (threads // 128 > threads // 24 * 24 // 128).repeat(8).reshape(16, 4, 192)
        outputs["v_merged"] = np.where(behind, late.astype(x.v_a.dtype), outputs["v_merged"])
    return outputs
