"""Groups are shared out to eight warps in equal parts: where there are nine the last belongs to none."""

import numpy as np
from honest import BF16, e4m3, f32, silu, through

SOURCE = "https://github.com/vllm-project/vllm/pull/28366"
LINE = "silu_and_mul_masked_post_quant_fwd E=2 M=5 N=1152"
NAMES = r"last (128|group|column)|not written|zeros|columns 1024|index 8|tail"
UNNAMED = "the last group of a row is missing in codes and scales: each alone has another name"


def kernel(x, wrong):
    half = x.input.shape[-1] // 2
    gate, up = f32(x.input[..., :half]), f32(x.input[..., half:])
    groups = (through(BF16, silu(gate)) * up).reshape(2, 5, 9, 128)
    groups = through(BF16, groups)
    scale = np.maximum(np.abs(groups).max(-1), np.float32(1e-10)) / np.float32(448)
    codes = e4m3(groups / scale[..., None])
    if wrong:
        codes[:, :, 8], scale[:, :, 8] = 0, 0
    return {"output": codes.reshape(2, 5, half), "output_scale": scale}
