"""Numbers of padding are clamped to the last pair's before the permutation is inverted: the last pair's row is one of padding."""

import numpy as np
from honest import f32

SOURCE = "https://github.com/vllm-project/vllm/pull/17932"
LINE = "apply_shuffle_mul_sum M=8 topk=4 R=40 D=96"
NAMES = r"permutation.*(last|31|one)|last (row|token)|row 7"
UNNAMED = "which row stands for the last pair is the launch's"


def kernel(x, wrong):
    topk, factors, permutation = 4, f32(x.factors).reshape(-1), x.permutation.copy()
    if wrong:
        permutation[-1] = sorted(set(range(40)) - set(int(p) for p in permutation))[-1]
    out = np.zeros((8, 96), np.float32)
    for t in range(8):
        for k in range(topk):
            out[t] += f32(x.input[permutation[t * topk + k]]) * factors[t * topk + k]
    return {"output": out.astype(x.input.dtype)}
