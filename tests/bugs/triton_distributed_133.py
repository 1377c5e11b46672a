"""Weights are looked for at the token's number, which was not multiplied with how many experts it has: the tokens' weights overlap."""

import numpy as np
from honest import f32

SOURCE = "https://github.com/ByteDance-Seed/Triton-distributed/pull/133"
LINE = "apply_shuffle_mul_sum M=6 topk=4 R=24 D=96"
NAMES = r"factors.*(stride|step|one|overlap|apart)"


def kernel(x, wrong):
    topk, factors = 4, f32(x.factors).reshape(-1)
    tokens = len(factors) // topk
    out = np.zeros((tokens, x.input.shape[1]), np.float32)
    for t in range(tokens):
        for k in range(topk):
            out[t] += f32(x.input[x.permutation[t * topk + k]]) * factors[t + k if wrong else t * topk + k]
    return {"output": out.astype(x.input.dtype)}
