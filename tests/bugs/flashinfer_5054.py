"""Masks of 32 bits are read as bytes: of four elements the first is the value, the others are its zeros."""

import numpy as np

SOURCE = "https://github.com/flashinfer-ai/flashinfer/pull/5054"
LINE = "segment_packbits N=300 M=50 --attr batch_size=4"
NAMES = r"32 bits|4 bytes|i / 4|every (fourth|4)"


def kernel(x, wrong):
    elements = x.x.astype(bool)
    if wrong:
        elements = elements.astype(np.int32).view(np.uint8)[: len(elements)].astype(bool)
    y = x.y.copy()
    for b in range(len(x.input_indptr) - 1):
        segment = elements[x.input_indptr[b] : x.input_indptr[b + 1]]
        packed = np.packbits(segment, bitorder="little")
        y[x.output_indptr[b] : x.output_indptr[b] + len(packed)] = packed
    return {"y": y}
