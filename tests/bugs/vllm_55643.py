"""The global scale is handed on the other way round: it multiplies where it should divide."""

import numpy as np
from honest import BF16, E4M3, f32, fp4_codes, in_tiles, silu

SOURCE = "https://github.com/vllm-project/vllm/pull/55643"
LINE = "silu_and_mul_scaled_fp4_grouped_quant L=2 M=5 K=128"
NAMES = r"input_global_scale.*(divides|invert)"


def kernel(x, wrong):
    groups, rows, width = len(x.mask), x.input_tensor.shape[1], x.input_tensor.shape[2] // 2
    codes = np.zeros((groups, rows, width // 2), np.uint8)
    scales = np.zeros((groups, 128, -(-(width // 16) // 4) * 4), E4M3)
    for l in range(groups):
        gate, up = f32(x.input_tensor[l, :, :width]), f32(x.input_tensor[l, :, width:])
        value = f32((silu(gate) * up).astype(x.input_tensor.dtype)).reshape(rows, -1, 16)
        glob = np.float32(x.input_global_scale[l])
        glob = 1 / glob if wrong else glob
        scale = np.minimum(glob * (np.abs(value).max(-1) * np.float32(1 / 6)), 448).astype(E4M3)
        with np.errstate(all="ignore"):
            factor = np.where(f32(scale) != 0, glob / f32(scale), np.float32(0))
        there = slice(0, x.mask[l])
        codes[l, there] = fp4_codes((value * factor[..., None]).reshape(rows, -1))[there]
        scales[l] = in_tiles(scale[there], 128, scales.shape[2], E4M3)
    return {"output": codes, "output_scales": scales}
