"""Producer and consumer count different rows of tiles: tile j of scales is looked for where tile j / 2 lies, and only the first one's rows are right."""

import numpy as np
from honest import BF16, cutlass_scaled_fp4_mm, tile_place

SOURCE = "https://github.com/NVIDIA/TransformerEngine/pull/3485"
LINE = "cutlass_scaled_fp4_mm M=24 N=128 K=512"
NAMES = r"(tile|4 groups|group|64).*(scale)|scale.*(tile|group|64)"
UNNAMED = "which tile of scales is which is the layout's own"


def kernel(x, wrong):
    return cutlass_scaled_fp4_mm(x, place=(lambda r, g, columns: tile_place(r, g // 4 // 2 * 4 + g % 4, columns)) if wrong else tile_place)
