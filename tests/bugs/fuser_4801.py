"""Block scales are given row by row where tiles of 128 x 4 are read."""

from honest import cutlass_scaled_fp4_mm, tile_place

SOURCE = "https://github.com/NVIDIA/Fuser/pull/4801"
LINE = "cutlass_scaled_fp4_mm M=16 N=32 K=256"
NAMES = r"row by row"


def kernel(x, wrong):
    return cutlass_scaled_fp4_mm(x, place=(lambda r, g, columns: r * columns + g) if wrong else tile_place)
