"""Rows of logits are looked for at multiples of the vocabulary, where they are slices of wider ones."""

import numpy as np

SOURCE = "https://github.com/mlc-ai/xgrammar/pull/390"
LINE = "apply_token_bitmask_inplace_cuda B=4 V=1000 W=32 --special gaps"
NAMES = r"logits.*(packed|stride)"


def kernel(x, wrong):
    rows, vocabulary = x.logits.shape
    allowed = np.unpackbits(np.ascontiguousarray(x.bitmask).view(np.uint8), axis=1, bitorder="little")[:, :vocabulary].astype(bool)
    if not wrong:
        return {"logits": np.where(allowed, x.logits, np.float32(-np.inf)).astype(x.logits.dtype)}
    stride = x.logits.strides[0] // 4
    memory = np.lib.stride_tricks.as_strided(x.logits, ((rows - 1) * stride + vocabulary,), (4,)).copy()
    for row in range(rows):
        memory[row * vocabulary : (row + 1) * vocabulary][~allowed[row]] = -np.inf
    return {"logits": np.stack([memory[row * stride : row * stride + vocabulary] for row in range(rows)])}
