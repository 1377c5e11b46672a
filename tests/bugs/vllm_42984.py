"""Rows of no expert are taken for expert 0's first row, whose scales they overwrite."""

import numpy as np
from honest import E4M3, f32, fp4_codes, tile_place

SOURCE = "https://github.com/vllm-project/vllm/pull/42984"
LINE = "scaled_fp4_experts_quant M=40 T=40 K=80 E=4 R=512"
NAMES = r"output_scales.*(row 0|first row|one row)"


def edit(inputs):
    return {"expert_offsets": np.array([0, 9, 14, 22, 31], np.int32)}


def kernel(x, wrong):
    rows, groups = f32(x.input_tensor).reshape(len(x.input_tensor), -1, 16), x.input_tensor.shape[1] // 16
    columns = -(-groups // 4) * 4
    scales, codes = np.zeros(512 * columns, E4M3), np.zeros((len(rows), groups * 8), np.uint8)
    offsets, begin = x.expert_offsets, [0]
    for e in range(4):
        begin.append(begin[-1] + -(-(offsets[e + 1] - offsets[e]) // 128) * 128)
    for t in range(offsets[4] if not wrong else len(rows)):
        e = max(np.searchsorted(offsets, t, side="right") - 1, 0)
        row = begin[e] + t - offsets[e] if e < 4 else 0
        glob = x.input_global_scale[e if e < 4 else 0]
        scale = (glob * (np.abs(rows[t]).max(-1) * np.float32(1 / 6))).astype(E4M3)
        with np.errstate(all="ignore"):
            factor = np.where(f32(scale) != 0, glob / f32(scale), np.float32(0))
        codes[t] = fp4_codes((rows[t] * factor[:, None]).reshape(-1))
        for g in range(groups):
            scales[tile_place(row, g, columns)] = scale[g]
    return {"output": codes, "output_scales": scales.reshape(512, columns)}
