"""An expert's block scales are looked for behind as many rows as there are weights, though they are padded to whole tiles of 128 rows."""

import numpy as np
from honest import BF16, fp4_values, f32, out_of_tiles

SOURCE = "https://github.com/vllm-project/vllm/pull/35497"
LINE = "cutlass_fp4_group_mm M=40 N=160 K=128 E=4 R=512"
NAMES = r"b_blockscale.*(padd|stride|logical|rows|another)"


def kernel(x, wrong):
    experts, columns, groups = len(x.alphas), x.b_fp4.shape[1], x.a_fp4.shape[1] // 8
    out = np.zeros((len(x.a_fp4), columns), BF16)
    begins = [*x.expert_offsets, len(x.a_fp4)]
    flat, block = x.b_blockscale.reshape(-1), 0
    for e in range(experts):
        rows = slice(begins[e], begins[e + 1])
        count = begins[e + 1] - begins[e]
        if count == 0:
            continue
        base = e * (columns if wrong else x.b_blockscale.shape[1]) * x.b_blockscale.shape[2]
        own = np.concatenate([flat[base:], np.zeros(x.b_blockscale.shape[1] * x.b_blockscale.shape[2], flat.dtype)])
        scales_b = f32(out_of_tiles(own[: x.b_blockscale[e].size].reshape(x.b_blockscale[e].shape), columns, groups))
        scales_a = f32(out_of_tiles(x.a_blockscale[block : block + -(-count // 128) * 128], count, groups))
        a, b = fp4_values(x.a_fp4[rows]) * np.repeat(scales_a, 16, 1), fp4_values(x.b_fp4[e]) * np.repeat(scales_b, 16, 1)
        out[rows] = (np.float32(x.alphas[e]) * (a @ b.T)).astype(BF16)
        block += -(-count // 128) * 128
    return {"out": out}
