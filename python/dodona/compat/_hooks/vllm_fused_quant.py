"""vLLM's kernels that quantize what a norm or a gate gives, as the norm or gate, whose numbers round to 16 bits, and then the quantizer; and its quantizers of other layouts."""

from __future__ import annotations

from typing import Any, Optional

import numpy as np

from ..._arrays import dtype_name, is_torch
from ..._ops import function
from .._adapt import NotOffered, named, refuse
from .._layouts import as_given
from .._mx_moe import swiglu
from .arrays import as_f32, bare, dense, like, type_of
from .checks import of_shape, of_type, shape_of, writable
from .vllm import scaled_fp8_quant

E4M3_MAX = np.float32(448)
LEAST = np.float32(1) / (E4M3_MAX * np.float32(512))
SIXTEEN = ("bf16", "f16")


def _e4m3(name: str, quant_dtype: Any) -> None:
    if dtype_name(quant_dtype) != "f8_e4m3":
        raise refuse(name, f"is {quant_dtype!r}, offered is float8_e4m3fn", kind=NotOffered, code="unsupported", argument="quant_dtype")


def _wide(value: Any) -> np.ndarray:
    wide = as_f32(bare(value))
    return (wide.detach().numpy() if is_torch(wide) else np.asarray(wide)).astype(np.float32, copy=False)


def groups_quantized(values: Any, size: int, bound: Optional[float] = None) -> tuple[Any, Any]:
    """Of [rows, K]: codes e4m3(x / s), and s = max(min(amax / 448, bound), 1 / (448 * 512)) in fp32 [rows, K / size]."""
    wide = _wide(values)
    rows, columns = wide.shape
    blocks = wide.reshape(rows, columns // size, size)
    with np.errstate(invalid="ignore", over="ignore"):
        scales = np.nan_to_num(np.abs(blocks), nan=0.0, posinf=np.inf).max(-1, initial=0) / E4M3_MAX
        scales = np.maximum(scales if bound is None else np.minimum(scales, np.float32(bound)), LEAST).astype(np.float32)
        quotients = as_given((blocks / scales[..., None]).reshape(rows, columns), bare(values))
    from .vllm import e4m3_room

    codes = e4m3_room(values, (rows, columns))
    if rows and columns:
        function("sgl_per_tensor_quant_fp8")(quotients, codes, as_given(np.ones(1, np.float32), bare(values)), is_static=True)
    return codes, as_given(scales, bare(values))


def _groups(name: str, size: Any, columns: int) -> int:
    if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < 1 or columns % size:
        raise refuse(name, f"is {size!r}, expected a divisor of {columns}", argument="group_size")
    return int(size)


def _bound(name: str, scale_ub: Any) -> Optional[float]:
    if scale_ub is None:
        return None
    of_type(name, "scale_ub", scale_ub, "f32")
    value = _wide(scale_ub).reshape(-1)
    if value.size != 1 or np.isnan(value[0]):
        raise refuse(name, f"is {value.tolist()}, expected one number", argument="scale_ub")
    return float(value[0])


def _gated(name: str, input: Any) -> Any:
    rows, columns = shape_of(name, "input", input, 2)
    of_type(name, "input", input, *SIXTEEN)
    if columns % 2:
        raise refuse(name, f"has rows of {columns}, expected a gate beside a value", argument="input", code="bad_shape")
    return function("silu_and_mul")(like(input, dense(bare(input))), round_activation="yes")


@named("silu_and_mul_per_block_quant")
def silu_and_mul_per_block_quant(
    input: Any, group_size: int, quant_dtype: Any, scale_ub: Any = None, is_scale_transposed: bool = False
) -> tuple[Any, Any]:
    """silu(gate) up of [T, 2 K], rounded as vLLM's gate is, and groups of it: e4m3 [T, K] and fp32 [T, K / group_size], of columns that are neighbours where it is transposed."""
    name = "silu_and_mul_per_block_quant"
    _e4m3(name, quant_dtype)
    columns = shape_of(name, "input", input, 2)[1] // 2
    size = _groups(name, group_size, columns)
    codes, scales = groups_quantized(_gated(name, input), size, _bound(name, scale_ub))
    return codes, turned(scales) if is_scale_transposed else scales


def turned(scales: Any, rows: int = 0) -> Any:
    """The same numbers, columns first in memory, of so many rows at least."""
    across = dense(scales.swapaxes(-1, -2))
    if rows > across.shape[-1]:
        room = across.new_zeros(*across.shape[:-1], rows) if is_torch(across) else np.zeros((*across.shape[:-1], rows), across.dtype)
        room[..., : across.shape[-1]] = across
        return room[..., : across.shape[-1]].swapaxes(-1, -2)
    return across.swapaxes(-1, -2)


def _normed(name: str, input: Any, weight: Any, epsilon: float, residual: Any) -> Any:
    """vLLM's norm of rows: [T, K] of the input's type. The residual becomes what is normed."""
    shape = shape_of(name, "input", input, 2, 3)
    of_type(name, "input", input, *SIXTEEN, "f32")
    flat = like(input, dense(bare(input)).reshape(-1, shape[-1]))
    if residual is None:
        return function("rmsnorm")(flat, weight, eps=epsilon, kernel="vllm", weight_order="rounded")
    of_shape(name, "residual", residual, shape)
    of_type(name, "residual", residual, type_of(input))
    writable(name, "residual", residual)
    total = like(residual, dense(bare(residual)).reshape(-1, shape[-1]))
    own = bare(flat).clone() if is_torch(bare(flat)) else bare(flat).copy()
    kernel = "vllm_256" if bare(flat).shape[0] >= 256 else "vllm"
    function("fused_add_rmsnorm")(like(flat, own), total, weight, eps=epsilon, kernel=kernel, weight_order="rounded", normalize="rounded")
    if bare(total).reshape(shape) is not bare(residual):
        bare(residual)[...] = bare(total).reshape(shape)
    return like(flat, own)


@named("rms_norm_dynamic_per_token_quant")
def rms_norm_dynamic_per_token_quant(
    input: Any, weight: Any, epsilon: float, quant_dtype: Any, scale_ub: Any = None, residual: Any = None
) -> tuple[Any, Any]:
    """rms_norm (or fused_add_rms_norm, which changes the residual alone), then scaled_fp8_quant of each row: e4m3 of the input's shape, fp32 [T, 1]."""
    name = "rms_norm_dynamic_per_token_quant"
    _e4m3(name, quant_dtype)
    shape = shape_of(name, "input", input, 2, 3)
    codes, scales = scaled_fp8_quant(_normed(name, input, weight, epsilon, residual), None, None, scale_ub, True)
    return like(codes, bare(codes).reshape(shape)), scales


@named("rms_norm_per_block_quant")
def rms_norm_per_block_quant(
    input: Any, weight: Any, epsilon: float, quant_dtype: Any, group_size: Any, scale_ub: Any = None, residual: Any = None, is_scale_transposed: bool = False,
    tma_alignment: int = 0,
) -> tuple[Any, Any]:  # fmt: skip
    """The same with a scale for each group_size[1] numbers of a row, [T, K / group_size[1]]; where it is transposed columns are neighbours, of rows filled up to tma_alignment."""
    name = "rms_norm_per_block_quant"
    _e4m3(name, quant_dtype)
    shape = shape_of(name, "input", input, 2, 3)
    if len(group_size) != 2 or tma_alignment not in (0, 4):
        raise refuse(name, f"is {group_size!r} with tma_alignment={tma_alignment}, expected two sizes and 0 or 4", argument="group_size")
    size = _groups(name, group_size[1], shape[-1])
    codes, scales = groups_quantized(_normed(name, input, weight, epsilon, residual), size, _bound(name, scale_ub))
    if is_scale_transposed:
        lead = shape[:-1] if tma_alignment else (bare(codes).shape[0],)
        scales = scales.reshape(*lead, -1)
        scales = turned(scales, -(-lead[-1] // tma_alignment) * tma_alignment if tma_alignment else 0)
    return like(codes, bare(codes).reshape(shape)), scales


@named("silu_and_mul_with_clamp")
def silu_and_mul_with_clamp(out: Any, input: Any, limit: float, alpha: float = 1.0, beta: float = 0.0) -> None:
    """g / (1 + e^(-alpha g)) (u + beta) in fp32, rounded, of g = min(gate, limit) and u = clamp(up, -limit, limit); gate and up are the halves of a row."""
    name = "silu_and_mul_with_clamp"
    *lead, columns = shape_of(name, "input", input, 1, 2, 3, 4)
    of_type(name, "input", input, *SIXTEEN, "f32")
    if columns % 2:
        raise refuse(name, f"has rows of {columns}, expected a gate beside a value", argument="input", code="bad_shape")
    of_shape(name, "out", out, (*lead, columns // 2))
    of_type(name, "out", out, type_of(input))
    writable(name, "out", out)
    wide = _wide(input)
    made = swiglu(wide[..., : columns // 2], wide[..., columns // 2 :], alpha, beta, limit)
    from .arrays import rounded

    target = bare(out)
    values = rounded(as_given(made, target), type_of(input))
    target[...] = values if is_torch(target) else values.view(target.dtype)


def create_fp4_scale_tensor(m: int, n: int, device: Any, is_sf_swizzled_layout: bool) -> Any:
    """Room for the scales of [m, n] codes of E2M1: zeros in tiles of 128 rows and four scales, int32 [m rounded up, n / 64 rounded up], or uint8 [m, n / 16]."""
    import torch

    if not is_sf_swizzled_layout:
        return torch.empty((m, n // 16), device=device, dtype=torch.uint8)
    return torch.zeros((-(-m // 128) * 128, -(-(n // 16) // 4)), device=device, dtype=torch.int32)


def create_fp4_output_tensors(m: int, n: int, device: Any, is_sf_swizzled_layout: bool, padded_n: Optional[int] = None) -> Any:
    """Room for what scaled_fp4_quant makes of [m, n], or of rows padded to padded_n: codes uint8 [m, n / 2], and `create_fp4_scale_tensor`."""
    import torch

    width = n if padded_n is None else padded_n
    return torch.empty((m, width // 2), device=device, dtype=torch.uint8), create_fp4_scale_tensor(m, width, device, is_sf_swizzled_layout)


QUANTIZED = (create_fp4_output_tensors, create_fp4_scale_tensor, rms_norm_dynamic_per_token_quant, rms_norm_per_block_quant, silu_and_mul_per_block_quant)
