"""A group of lanes is halved by the thread's number in the grid, not in its group of 32: but for the first 32 numbers, two blocks of 16 share the larger of their maxima."""

import numpy as np
from honest import E4M3, F32, f32, fp4_codes, in_tiles

SOURCE = "https://github.com/ml-explore/mlx/pull/3934"
LINE = "scaled_fp4_quant M=16 K=256"
NAMES = r"(maxim|amax|scale|block|group).*(32|two|neighbour|next|both|pair)"


def kernel(x, wrong):
    groups = f32(x.input).reshape(16, -1, 16)
    amax = np.abs(groups).max(-1)
    if wrong:
        shared = np.repeat(amax.reshape(16, -1, 2).max(-1), 2, axis=1)
        shared[0, :2] = amax[0, :2]
        amax = shared
    glob = F32(x.input_global_scale[0])
    scale = (glob * (amax * F32(1 / 6))).astype(E4M3)
    with np.errstate(all="ignore"):
        factor = np.where(f32(scale) != 0, glob / f32(scale), F32(0))
    return {"output": fp4_codes((groups * factor[..., None]).reshape(x.input.shape)), "output_scale": in_tiles(scale, 128, 16, E4M3)}
