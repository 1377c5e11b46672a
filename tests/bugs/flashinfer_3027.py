"""Rows of every group behind the first are quantized with the encode scale of the first."""

import numpy as np
from honest import E4M3, F32, f32, fp4_codes, in_tiles

SOURCE = "https://github.com/flashinfer-ai/flashinfer/pull/3027"
LINE = "scaled_fp4_grouped_quant L=3 M=17 K=64"
NAMES = r"input_global_scale"


def kernel(x, wrong):
    codes, scales = np.zeros((3, 17, 32), np.uint8), np.zeros((3, 128, 4), E4M3)
    for g, rows in enumerate(x.mask):
        groups = f32(x.input_tensor[g, :rows]).reshape(rows, -1, 16)
        whole = F32(x.input_global_scale[0 if wrong else g])
        scale = (whole * (np.abs(groups).max(-1) * F32(1 / 6))).astype(E4M3)
        factor = np.where(f32(scale) != 0, whole / np.where(f32(scale) != 0, f32(scale), F32(1)), F32(0))
        codes[g, :rows] = fp4_codes((groups * factor[..., None]).reshape(rows, 64))
        scales[g] = in_tiles(scale, 128, 4, E4M3)
    return {"output": codes, "output_scales": scales}
