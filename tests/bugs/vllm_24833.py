"""The sigmoid is made of the hardware's approximate tanh of half the argument."""

import numpy as np
from honest import E4M3, f32, fp4_codes, in_tiles, silu, through

SOURCE = "https://github.com/vllm-project/vllm/pull/24833"
LINE = "silu_and_mul_scaled_fp4_grouped_quant L=3 M=40 K=512"
NAMES = r"tanh"
UNNAMED = "five elements fail, of codes of four bits: too few for a cause"


def kernel(x, wrong):
    groups, rows, width = len(x.mask), x.input_tensor.shape[1], x.input_tensor.shape[2] // 2
    codes = np.zeros((groups, rows, width // 2), np.uint8)
    scales = np.zeros((groups, 128, -(-(width // 16) // 4) * 4), E4M3)
    for l in range(groups):
        gate, up = f32(x.input_tensor[l, :, :width]), f32(x.input_tensor[l, :, width:])
        half = np.float32(0.5)
        acted = gate * (half * through(np.float16, np.tanh(gate * half)) + half) if wrong else silu(gate)
        value = f32((acted * up).astype(x.input_tensor.dtype)).reshape(rows, -1, 16)
        glob = np.float32(x.input_global_scale[l])
        scale = np.minimum(glob * (np.abs(value).max(-1) * np.float32(1 / 6)), 448).astype(E4M3)
        with np.errstate(all="ignore"):
            factor = np.where(f32(scale) != 0, glob / f32(scale), np.float32(0))
        there = slice(0, x.mask[l])
        codes[l, there] = fp4_codes((value * factor[..., None]).reshape(rows, -1))[there]
        scales[l] = in_tiles(scale[there], 128, scales.shape[2], E4M3)
    return {"output": codes, "output_scales": scales}
