"""Scales are written at the stride of the logical matrix, though the padded one is wider."""

from honest import scaled_fp4_quant, tile_place

SOURCE = "https://github.com/meta-pytorch/MSLK/pull/339"
LINE = "scaled_fp4_quant M=40 K=80"
NAMES = r"logical|padded|stride"


def kernel(x, wrong):
    return scaled_fp4_quant(x, place=lambda r, g, columns: tile_place((r * 5 + g) // columns, (r * 5 + g) % columns, columns) if wrong else tile_place(r, g, columns))
