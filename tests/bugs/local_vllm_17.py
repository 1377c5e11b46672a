"""One side's head stride is used for both: padded heads of one, dense heads of the other."""

import numpy as np
from honest import merge_state, with_lines

SOURCE = "https://github.com/local-inference-lab/vllm/pull/17"
LINE = "merge_state_v2 T=12 N=4 D=128 --dialect flashinfer"
NAMES = r"v_b.*(stride|packed|apart)"


def edit(inputs):
    v_a = np.asarray(inputs["v_a"])
    wide = np.zeros((*v_a.shape[:2], 192), v_a.dtype)
    wide[..., :128] = v_a
    return {"v_a": wide[..., :128]}


def kernel(x, wrong):
    v_b = x.v_b
    if wrong:
        flat = np.concatenate([v_b.reshape(-1), np.zeros(v_b.size, v_b.dtype)])
        v_b = np.stack([np.stack([flat[t * 768 + h * 192 : t * 768 + h * 192 + 128] for h in range(4)]) for t in range(12)])
    return merge_state(with_lines(x, v_b=v_b), base_2=False, empty=True)
