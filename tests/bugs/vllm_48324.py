"""Factors of 32 bits are read as numbers of 16, gamma's and beta's alike."""

import numpy as np
from honest import BF16, f32

SOURCE = "https://github.com/vllm-project/vllm/issues/48324"
LINE = "layernorm T=12 D=512"
NAMES = r"gemma.*beta.*(bf16|16|bits)|(bf16|16|bits).*gemma.*beta"


def kernel(x, wrong):
    a = f32(x.input)
    mean = a.mean(-1, keepdims=True, dtype=np.float32)
    scale = 1 / np.sqrt(((a - mean) ** 2).mean(-1, keepdims=True, dtype=np.float32) + np.float32(getattr(x, "eps", 1e-6)))
    gamma, beta = x.gemma, x.beta
    if wrong:
        gamma, beta = (f32(np.ascontiguousarray(t).view(BF16)[:512]) for t in (gamma, beta))
    with np.errstate(all="ignore"):
        return {"out": ((a - mean) * scale * gamma + beta).astype(BF16)}
