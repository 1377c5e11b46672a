"""Quantizes every row of a matrix to FP8 with a scale of its own, in Triton."""

import torch
import triton
import triton.language as tl


@triton.jit
def _quantize_row(input, codes, scales, width, BLOCK: tl.constexpr, BUG: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < width
    x = tl.load(input + row * width + columns, mask=inside, other=0.0).to(tl.float32)
    if BUG:
        largest = tl.max(x, axis=0)  # a row whose largest magnitude is negative gets too small a scale
    else:
        largest = tl.max(tl.abs(x), axis=0)
    scale = largest * (1.0 / 448.0)
    factor = tl.where(scale > 0.0, tl.div_rn(1.0, scale), 0.0)
    code = tl.clamp(x * factor, -448.0, 448.0).to(tl.float8e4nv)
    tl.store(codes + row * width + columns, code, mask=inside)
    tl.store(scales + row, scale)


def per_token_quant_fp8(input, bug=False):
    """(codes, scales): e4m3 [rows, width] and fp32 [rows, 1] with scales[m] = max_k |input[m, k]| / 448. `input` is contiguous and on a
    GPU. `bug`: the maximum is taken without the magnitude."""
    rows, width = input.shape
    codes = torch.empty((rows, width), dtype=torch.float8_e4m3fn, device=input.device)
    scales = torch.empty((rows, 1), dtype=torch.float32, device=input.device)
    if rows:
        _quantize_row[(rows,)](input, codes, scales, width, BLOCK=triton.next_power_of_2(width), BUG=bug, num_warps=8)
    return codes, scales
