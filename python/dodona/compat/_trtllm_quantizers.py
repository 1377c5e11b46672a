"""TensorRT-LLM's quantizers, torch.ops.trtllm and tensorrt_llm, on tensors: e4m3 by blocks of 128 of a row, NVFP4 and MXFP8 by ops of ours, and the orders of scales.
Where kernels of two generations differ, as in the shape of scales, it is data-centre Blackwell's."""

from __future__ import annotations

from typing import Any, Optional

from .._ops import function
from . import _layouts as layouts
from ._adapt import NotOffered, refuse
from ._hooks.checks import of_shape, of_type, shape_of

BLOCK = 128
E4M3_MAX = 448.0
LEAST = 1.0 / (E4M3_MAX * 512.0)  # the least scale of a tensor or a row


def padded(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple


def contiguous(name: str, argument: str, value: Any) -> None:
    if not value.is_contiguous():
        raise refuse(name, "is not contiguous", argument=argument, code="bad_layout")


def e4m3(values: Any) -> Any:
    """To nearest even, beyond 448 to 448; NaN stays."""
    import torch

    return values.clamp(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn)


def _next_powers(scales: Any) -> Any:
    """The least 2^e, -127 <= e <= 127, that is no less."""
    import torch

    mantissas, exponents = torch.frexp(scales)
    exponents = torch.where(mantissas == 0.5, exponents - 1, exponents)
    exponents = torch.where(torch.isinf(scales), 127, torch.where(scales == 0, -127, exponents)).clamp(-127, 127)
    return torch.ldexp(torch.ones_like(scales), exponents)


def blocks_of_rows(values: Any, powers: bool = False) -> tuple[Any, Any]:
    """Of [rows, K]: codes e4m3(x s), and 1 / s in fp32 [rows, ceil(K / 128)], where s = 448 / amax of a block, in fp32, and 1 where amax is 0. With `powers` 1 / s is rounded up to
    a power of two and s is its reciprocal. NaN is no amax."""
    import torch

    rows, columns = values.shape
    blocks = -(-columns // BLOCK)
    wide = torch.nn.functional.pad(values.float(), (0, blocks * BLOCK - columns)).view(rows, blocks, BLOCK)
    amax = wide.abs().nan_to_num(nan=0.0, posinf=float("inf")).amax(-1) if wide.numel() else wide.new_zeros(rows, blocks)
    scale = torch.where(amax != 0, E4M3_MAX / amax, 1.0)
    stored = 1.0 / scale
    if powers:
        stored = _next_powers(stored)
        scale = 1.0 / stored
    codes = e4m3(wide * scale[..., None]).view(rows, blocks * BLOCK)[:, :columns]
    return codes.contiguous(), stored


def _bf16(name: str, value: Any, rank: int) -> tuple[int, ...]:
    shape = shape_of(name, "input", value, rank)
    of_type(name, "input", value, "bf16")
    if shape[-1] % 16:
        raise refuse(name, f"has rows of {shape[-1]}, expected a multiple of 16", argument="input", code="bad_shape")
    return shape


def fp8_quantize_1x128(input: Any, use_ue8m0: bool = False) -> tuple[Any, Any]:
    """bf16 [M, K], K a multiple of 16: e4m3 [M, K] and fp32 [ceil(K / 128), M]; see blocks_of_rows."""
    name = "fp8_quantize_1x128"
    _bf16(name, input, 2)
    contiguous(name, "input", input)
    codes, scales = blocks_of_rows(input, bool(use_ue8m0))
    return codes, scales.t().contiguous()


def fp8_batched_quantize_1x128_permute102(input: Any) -> tuple[Any, Any]:
    """bf16 [M, B, K] of one stride: e4m3 [B, M, K] and fp32 [B, ceil(K / 128), M to a multiple of 4], 0 behind the M-th."""
    name = "fp8_batched_quantize_1x128_permute102"
    rows, batch, inner = _bf16(name, input, 3)
    if input.stride(2) != 1 or input.stride(0) != input.stride(1) * batch:
        raise refuse(name, f"has strides {list(input.stride())}, expected [B s, s, 1]", argument="input", code="bad_layout")
    codes, scales = blocks_of_rows(input.permute(1, 0, 2).reshape(batch * rows, inner))
    made = scales.new_zeros(batch, scales.shape[1], padded(rows, 4))
    made[:, :, :rows] = scales.view(batch, rows, -1).transpose(1, 2)
    return codes.view(batch, rows, inner), made


def fp8_quantize_1x128_packed_ue8m0(input: Any, use_r128c4_layout: bool = False) -> tuple[Any, Any]:
    """As fp8_quantize_1x128 with powers of two, whose exponents lie in words of four: int32 [M, ceil(K / 512)] of strides (1, M to a multiple of 4)."""
    import torch

    name = "fp8_quantize_1x128_packed_ue8m0"
    rows, _ = _bf16(name, input, 2)
    contiguous(name, "input", input)
    if use_r128c4_layout:
        raise refuse(name, "is True, offered is False", kind=NotOffered, code="unsupported", argument="use_r128c4_layout")
    codes, scales = blocks_of_rows(input, True)
    exponents = torch.frexp(scales)[1] + 126
    words = padded(scales.shape[1], 4) // 4
    of_bytes = exponents.new_zeros(words, padded(rows, 4), 4)
    spread = torch.nn.functional.pad(exponents, (0, words * 4 - scales.shape[1])).view(rows, words, 4)
    of_bytes[:, :rows] = spread.transpose(0, 1)
    return codes, of_bytes.to(torch.uint8).view(torch.int32).squeeze(-1).t()[:rows]


# ---- NVFP4, MXFP4, MXFP8 ----


def fp4_quantize(input: Any, globalScale: Any, sfVecSize: int, sfUseUE8M0: bool = False, isSfSwizzledLayout: bool = True) -> tuple[Any, Any]:
    """f16, bf16 or e4m3 [..., K]: FlashInfer's fp4_quantize, packed e2m1 [..., K / 2] and bytes of scales in one dimension, tiles of 128 x 4 or row by row. globalScale has one number
    or one for each row; without it scales must be exponents."""
    name = "fp4_quantize"
    from .flashinfer import PACKAGE

    contiguous(name, "input", input)
    of_type(name, "input", input, "f16", "bf16", "f8_e4m3")
    if input.dim() < 2:
        raise refuse(name, f"has shape {list(input.shape)}, expected two dimensions at least", argument="input", code="bad_shape")
    if sfVecSize != (32 if sfUseUE8M0 else 16):
        raise refuse(name, f"is {sfVecSize}, expected {32 if sfUseUE8M0 else 16} with sfUseUE8M0={bool(sfUseUE8M0)}", argument="sfVecSize")
    if globalScale is None and not sfUseUE8M0:
        raise refuse(name, "is required when sfUseUE8M0 is false", argument="globalScale", code="missing_argument")
    rows = input.numel() // max(input.shape[-1], 1)
    if globalScale is not None:
        of_type(name, "globalScale", globalScale, "f32")
        if globalScale.numel() not in (1, rows):
            raise refuse(name, f"has {globalScale.numel()} numbers, expected 1 or one for each of {rows} rows", argument="globalScale", code="bad_shape")
    scale = None if globalScale is None or sfUseUE8M0 else globalScale.reshape(-1)
    codes, scales = PACKAGE.adapter(name).function(input, scale, sfVecSize, bool(sfUseUE8M0), bool(isSfSwizzledLayout))
    return codes, scales.reshape(-1)


def calculate_nvfp4_global_scale(input: Any, tokensPerBatch: Any) -> Any:
    """448 * 6 / amax of each row in fp32, [..., 1]. Rows behind a batch's tokensPerBatch, which upstream leaves as they were, are found too."""
    name = "calculate_nvfp4_global_scale"
    of_type(name, "input", input, "f16", "bf16")
    contiguous(name, "input", input)
    if input.dim() not in (2, 3) or input.shape[-1] % 16:
        raise refuse(name, f"has shape {list(input.shape)}, expected [(B,) T, K] of K a multiple of 16", argument="input", code="bad_shape")
    if tokensPerBatch is not None:
        of_type(name, "tokensPerBatch", tokensPerBatch, "i32")
        of_shape(name, "tokensPerBatch", tokensPerBatch, (input.shape[0] if input.dim() == 3 else 1,))
    return (E4M3_MAX * 6.0) / input.abs().amax(-1, keepdim=True).float()


def mxfp8_quantize(input: Any, swizzledLayout: bool = True, alignment: int = 32) -> tuple[Any, Any]:
    """e4m3 [..., K to a multiple of alignment] and bytes of exponents in one dimension."""
    import torch

    name = "mxfp8_quantize"
    if input.dim() < 2:
        raise refuse(name, f"has shape {list(input.shape)}, expected two dimensions at least", argument="input", code="bad_shape")
    contiguous(name, "input", input)
    of_type(name, "input", input, "f16", "bf16")
    codes, scales = function(name)(input.reshape(-1, input.shape[-1]), bool(swizzledLayout), alignment)
    return codes.view(*input.shape[:-1], codes.shape[-1]), scales.view(torch.uint8).reshape(-1)


def dequantize_mxe4m3_host(input: Any, scale: Any, is_sf_swizzled_layout: bool = True) -> Any:
    """Numbers in fp32 of e4m3 [M, K] under exponents, in tiles of 128 x 4 or row by row."""
    name = "dequantize_mxe4m3_host"
    rows, inner = shape_of(name, "input", input, 2)
    of_type(name, "input", input, "u8", "f8_e4m3")
    of_type(name, "scale", scale, "u8", "f8_e8m0")
    wanted = padded(rows, BLOCK) * padded(-(-inner // 32), 4) if is_sf_swizzled_layout else rows * (inner // 32)
    if inner % 32 or scale.numel() != wanted:
        raise refuse(name, f"has {scale.numel()} exponents, expected {wanted} for rows of {inner}, a multiple of 32", argument="scale", code="bad_shape")
    return layouts.mxfp8_dequantize_host(input, scale, is_sf_swizzled_layout)


def e2m1_and_ufp8sf_scale_to_float_v2(
    e2m1: Any, scales: Any, global_scale: Any, sf_vec_size: int, ufp8_type: int = 1, is_sf_swizzled_layout: bool = True
) -> Any:
    """Numbers of packed codes: under exponents (ufp8_type 0), or under e4m3 scales times the global one (1)."""
    name = "e2m1_and_ufp8sf_scale_to_float_v2"
    for argument, value in (("e2m1", e2m1), ("scales", scales)):
        of_type(name, argument, value, "u8", "f8_e4m3", "f8_e8m0")
    rows, packed = shape_of(name, "e2m1", e2m1, 2)
    if sf_vec_size not in (16, 32):
        raise refuse(name, f"is {sf_vec_size}, expected 16 or 32", argument="sf_vec_size")
    blocks = -(-packed * 2 // sf_vec_size)
    wanted = padded(rows, BLOCK) * padded(blocks, 4) if is_sf_swizzled_layout else rows * blocks
    if scales.numel() != wanted:
        raise refuse(name, f"has {scales.numel()} scales, expected {wanted}", argument="scales", code="bad_shape")
    if global_scale is not None:
        of_type(name, "global_scale", global_scale, "f32")
        if global_scale.numel() != 1:
            raise refuse(name, f"has {global_scale.numel()} numbers, expected one", argument="global_scale", code="bad_shape")
    return layouts.e2m1_and_ufp8sf_scale_to_float(e2m1, scales, global_scale, sf_vec_size, ufp8_type, is_sf_swizzled_layout)


def _matrices_of_scales(name: str, value: Any) -> Any:
    of_type(name, "input", value, "u8", "f8_e4m3", "f8_e8m0")
    if value.dim() not in (2, 3):
        raise refuse(name, f"has shape {list(value.shape)}, expected two or three dimensions", argument="input", code="bad_shape")
    contiguous(name, "input", value)
    import torch

    return value.view(torch.uint8)


def block_scale_interleave(input: Any) -> Any:
    """Scales [(E,) M, K / 16] in tiles of 128 x 4, filled up with zeros, in one dimension."""
    return function("nvfp4_block_scale_interleave")(_matrices_of_scales("block_scale_interleave", input)).reshape(-1)


def block_scale_interleave_reverse(input: Any) -> Any:
    """Scales in tiles, of whole ones, row by row."""
    import torch

    name = "block_scale_interleave_reverse"
    value = _matrices_of_scales(name, input)
    *_, rows, columns = value.shape
    if rows % BLOCK or columns % 4:
        raise refuse(name, f"has shape {list(value.shape)}, expected whole tiles of 128 x 4", argument="input", code="bad_shape")
    parts = [torch.from_numpy(layouts.scales_of(part.numpy(), rows, columns, BLOCK).copy()) for part in value.reshape(-1, rows, columns)]
    return torch.stack(parts).view(value.shape) if parts else value.clone()


# ---- one scale for a tensor, or for each row ----


def _tensor(name: str, value: Any) -> None:
    of_type(name, "input", value, "f16", "bf16", "f32")
    contiguous(name, "input", value)
    if value.dim() < 2 or not value.numel():
        raise refuse(name, f"has shape {list(value.shape)}, expected numbers of two dimensions at least", argument="input", code="bad_shape")


def _with_scale(value: Any, amax: Any) -> tuple[Any, Any]:
    scale = (amax.float() / E4M3_MAX).clamp_min(LEAST).to(value.dtype)
    return e4m3(value.float() / scale.float()), scale


def quantize_e4m3_per_tensor(input: Any) -> tuple[Any, Any]:
    """s = max(amax / 448, 1 / (448 * 512)), rounded to the input's type, of shape [1, ..., 1], and e4m3(x / s)."""
    _tensor("quantize_e4m3_per_tensor", input)
    return _with_scale(input, input.abs().amax().reshape([1] * input.dim()))


def quantize_e4m3_activation(input: Any) -> tuple[Any, Any]:
    """The same for each row, [..., 1]."""
    _tensor("quantize_e4m3_activation", input)
    return _with_scale(input, input.abs().amax(-1, keepdim=True))


def static_quantize_e4m3_per_tensor(input: Any, scale: Any) -> tuple[Any, Any]:
    """e4m3(x / s), and s."""
    name = "static_quantize_e4m3_per_tensor"
    _tensor(name, input)
    of_type(name, "scale", scale, "f16", "bf16", "f32")
    if scale.numel() != 1:
        raise refuse(name, f"has {scale.numel()} numbers, expected one", argument="scale", code="bad_shape")
    return e4m3(input.float() / scale.float().reshape(())), scale.clone()
