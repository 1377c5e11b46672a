"""Block scales beyond the largest e4m3 number become NaN, where they should saturate."""

import numpy as np
from honest import E4M3, f32, fp4_codes, in_tiles

SOURCE = "https://github.com/NVIDIA/Model-Optimizer/pull/1397"
LINE = "scaled_fp4_quant M=32 K=256"
NAMES = r"NaN.*saturate|saturate.*NaN"


def edit(inputs):
    most = np.abs(f32(inputs["input"])).max()
    return {"input_global_scale": np.array([448 * 6 * 1.75 / most], np.float32)}


def kernel(x, wrong):
    groups, glob = f32(x.input).reshape(len(x.input), -1, 16), np.float32(x.input_global_scale[0])
    exact = glob * (np.abs(groups).max(-1) * np.float32(1 / 6))
    scale = np.minimum(exact, 448).astype(E4M3)
    factor = np.where(f32(scale) != 0, glob / f32(scale), np.float32(0))
    stored = exact.astype(E4M3) if wrong else scale
    rows, columns = -(-len(groups) // 128) * 128, -(-groups.shape[1] // 4) * 4
    return {"output": fp4_codes((groups * factor[..., None]).reshape(x.input.shape)), "output_scale": in_tiles(stored, rows, columns, E4M3)}
