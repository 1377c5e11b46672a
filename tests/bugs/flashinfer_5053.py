"""Codes are written, block scales are not."""

from honest import scaled_fp4_quant

SOURCE = "https://github.com/flashinfer-ai/flashinfer/issues/5053"
LINE = "scaled_fp4_quant M=16 K=256"
NAMES = r"zeros|not written"


def kernel(x, wrong):
    return scaled_fp4_quant(x, scales=lambda s: s * 0 if wrong else s)
