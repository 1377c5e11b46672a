"""Of a head that lies in two blocks the second has not loaded the weights: its columns are merged with those of the head before."""

import numpy as np
from honest import f32, merge_state

SOURCE = "https://github.com/vllm-project/vllm/pull/40924"
LINE = "merge_state_v2 T=12 N=4 D=192"
NAMES = r"(parts? of rows|columns 128).*(head|row)|head.*columns 128"



def kernel(x, wrong):
    out = merge_state(x, base_2=False)
    if wrong:
        most = np.maximum(x.s_a, x.s_b)
        a, b = np.exp(x.s_a - most), np.exp(x.s_b - most)
        a, b = np.roll(a / (a + b), 1, 1)[..., None], np.roll(b / (a + b), 1, 1)[..., None]
        merged = (f32(x.v_a) * a + f32(x.v_b) * b).astype(x.v_a.dtype)
        out["v_merged"][:, 1:, 128:] = merged[:, 1:, 128:]
    return out
