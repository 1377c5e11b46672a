"""Rows that fill the last tile get scales of zero where they would lie were the scales no wider than they are needed: among those of real rows."""

from honest import scaled_fp4_quant, tile_place

SOURCE = "https://github.com/flashinfer-ai/flashinfer/pull/2025"
LINE = "scaled_fp4_quant M=200 K=144"
NAMES = r"output_scale.*(zero|fill|pad|tile)|zeros"


def kernel(x, wrong):
    out = scaled_fp4_quant(x)
    if wrong:
        flat = out["output_scale"].reshape(-1)
        for row in range(200, 256):
            flat[[tile_place(row, column, 8) for column in range(12)]] = 0
    return out
