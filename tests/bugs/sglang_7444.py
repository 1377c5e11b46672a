"""Rows are skipped whose number is not below that of the tokens, though there are as many rows as tokens have experts."""

import numpy as np
from honest import f32

SOURCE = "https://github.com/sgl-project/sglang/pull/7444"
LINE = "apply_shuffle_mul_sum M=6 topk=4 R=24 D=96"
NAMES = r"(input|permutation).*(rows?|from) .*(6|beyond|skipped|left out)"


def kernel(x, wrong):
    tokens, topk = len(x.factors.reshape(-1)) // 4, 4
    out = np.zeros((tokens, x.input.shape[1]), np.float32)
    for t in range(tokens):
        for k in range(topk):
            row = x.permutation[t * topk + k]
            if not (wrong and row >= tokens):
                out[t] += f32(x.input[row]) * f32(x.factors.reshape(-1)[t * topk + k])
    return {"output": out.astype(x.input.dtype)}
