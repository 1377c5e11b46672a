"""The last row of a group shares its warp with a row of padding, whose numbers count in its maxima."""

import numpy as np
from honest import E4M3, f32, fp4_codes, in_tiles

SOURCE = "https://github.com/flashinfer-ai/flashinfer/issues/3057"
LINE = "scaled_fp4_grouped_quant L=4 M=33 K=128"
NAMES = r"last|next row|row behind|padding|mask"
UNNAMED = "what rows of padding hold is no input of the rule"


def kernel(x, wrong):
    values = f32(x.input_tensor).reshape(4, 33, -1, 16)
    codes, scales = np.zeros((4, 33, 64), np.uint8), np.zeros((4, 128, 8), E4M3)
    for l in range(4):
        glob, amax = np.float32(x.input_global_scale[l]), np.abs(values[l]).max(-1)
        n = int(x.mask[l])
        if wrong and 0 < n < 33:
            amax[n - 1] = np.maximum(amax[n - 1], amax[n] * 1.5)
        scale = (glob * (amax * np.float32(1 / 6))).astype(E4M3)
        with np.errstate(all="ignore"):
            factor = np.where(f32(scale) != 0, glob / f32(scale), np.float32(0))
        codes[l] = fp4_codes((values[l] * factor[..., None]).reshape(33, -1))
        scales[l] = in_tiles(scale, 128, 8, E4M3)
    return {"output": codes, "output_scales": scales}
