"""Block scales are multiplied as the numbers that their bytes are, not as what these stand for."""

import numpy as np
from honest import cutlass_scaled_fp4_mm, with_lines

SOURCE = "https://github.com/ml-explore/mlx/issues/3762"
LINE = "cutlass_scaled_fp4_mm M=5 N=32 K=256"
NAMES = r"block_scale_b.*(byte|code|bits|integer|number|whole)"
UNNAMED = "no scale of the call is the number of its own byte"


def kernel(x, wrong):
    return cutlass_scaled_fp4_mm(with_lines(x, block_scale_b=x.block_scale_b.view(np.uint8)) if wrong else x)
