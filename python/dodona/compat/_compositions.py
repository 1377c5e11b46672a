"""FlashInfer's functions that are several ops here: rotations that compute their angles, and norms whose output is quantized. What is rounded in
between is rounded to fp32."""

from __future__ import annotations

import math
from typing import Any, Callable, Optional

import numpy as np

from .._arrays import dtype_name, is_torch
from .._library import Error
from .._ops import function
from ._adapt import NotOffered, as_refused, refuse
from ._hooks.arrays import as_f32, bare, dense_copy, like, not_writable, rounded, type_of
from ._layouts import as_given


def _numbers(name: str, argument: str, value: Any, rank: int) -> np.ndarray:
    array = bare(value)
    if not hasattr(array, "shape") or len(array.shape) != rank or type_of(array) not in ("i32", "i64"):
        found = f"is {array.dtype} {list(array.shape)}" if hasattr(array, "shape") else f"is {array!r}"
        raise refuse(name, f"{found}, expected int32 or int64 of {rank} dimension", argument=argument, code="bad_dtype")
    return np.asarray(array).astype(np.int64)


# ---- rotations ----


def frequencies(rotary_dim: int, scale: float, theta: float) -> np.ndarray:
    """Of the pairs: theta^(-2i / rotary_dim), divided by the scale."""
    return theta ** (-2.0 * np.arange(rotary_dim // 2) / rotary_dim) / scale


def llama31_frequencies(rotary_dim: int, scale: float, theta: float, low: float, high: float, context: float) -> np.ndarray:
    """Between those that are divided by the scale and those that are not: by how often a pair turns within the old context, from `low` to `high`
    times."""
    plain = frequencies(rotary_dim, 1.0, theta)
    turns = plain * context / (2 * math.pi)
    share = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return (1 - share) * plain / scale + share * plain


def _positions(name: str, indptr: Any, offsets: Any, rows: int) -> np.ndarray:
    """Of tokens one request after another, each request from its offset on."""
    begins, starts = _numbers(name, "indptr", indptr, 1), _numbers(name, "offsets", offsets, 1)
    lengths = np.diff(begins)
    if len(starts) != len(lengths) or (lengths < 0).any() or begins[0] != 0 or begins[-1] != rows:
        raise refuse(name, f"is {begins.tolist()} with {len(starts)} offsets, expected to rise from 0 to {rows}, one step an offset", argument="indptr")
    return np.repeat(starts - begins[:-1], lengths) + np.arange(rows)


def _rotate(name: str, q: Any, k: Any, positions: np.ndarray, rotary_dim: Optional[int], interleave: bool, of: Callable[[int], np.ndarray], **how: Any) -> None:
    """q and k in place, by the op that takes a table of cosines and sines: a row of it for each position that there is."""
    size = bare(q).shape[2]
    width = size if rotary_dim is None else int(rotary_dim)
    if width < 2 or width % 2 or width > size:
        raise refuse(name, f"is {rotary_dim!r}, expected an even number up to {size}", argument="rotary_dim")
    different, rows = np.unique(positions, return_inverse=True)
    angles = different[:, None] * of(width)
    table = np.concatenate([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32).reshape(-1, width)
    if not len(different):
        return
    given = bare(q)
    rotate = function("apply_rope_with_cos_sin_cache_inplace")
    rows = as_given(np.ascontiguousarray(rows.reshape(-1).astype(np.int64)), given)
    try:
        rotate(rows, q, k, size, as_given(table, given), not interleave, **how)
    except Error as error:
        raise as_refused(error, name) from None


def _heads(name: str, q: Any, k: Any) -> int:
    """How many tokens the two have."""
    for argument, value in (("q", q), ("k", k)):
        shape = getattr(bare(value), "shape", None)
        if shape is None or len(shape) != 3 or tuple(shape)[::2] != tuple(bare(q).shape)[::2]:
            found = f"is {value!r}" if shape is None else f"has shape {list(shape)}"
            raise refuse(name, f"{found}, expected [tokens, heads, head_dim], alike for q and k but for the heads", argument=argument, code="bad_shape")
    return bare(q).shape[0]


def _copies(*values: Any) -> list:
    return [like(value, dense_copy(bare(value))) for value in values]


def _rotations(name: str, where: Callable[[str, tuple, int], np.ndarray], count: int, in_place: bool, scale: float, theta: float, llama31: bool) -> Callable:
    """One of the eight: `count` arguments say the positions."""
    says = ("indptr", "offsets") if count == 2 else ("pos_ids",)
    further = ", low_freq_factor=1, high_freq_factor=4, old_context_len=8192" if llama31 else ""
    source = (
        f"def {name}(q, k, {', '.join(says)}, rotary_dim=None, interleave=False, rope_scale={scale!r}, rope_theta={theta!r}{further}, **how):\n"
        f"    return _run(q, k, ({', '.join(says)},), rotary_dim, interleave, rope_scale, rope_theta"
        f"{', (low_freq_factor, high_freq_factor, old_context_len)' if llama31 else ', ()'}, how)\n"
    )

    def run(q: Any, k: Any, places: tuple, rotary_dim: Any, interleave: bool, rope_scale: float, rope_theta: float, factors: tuple, how: dict) -> Any:
        positions = where(name, places, _heads(name, q, k))
        for argument, value in (("q", q), ("k", k)):
            if in_place and (reason := not_writable(bare(value))):
                raise refuse(name, f"{reason}, and is written", argument=argument)
        for argument, value in (("rope_scale", rope_scale), ("rope_theta", rope_theta)):
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
                raise refuse(name, f"is {value!r}, expected a positive number", argument=argument)
        of = llama31_frequencies if llama31 else frequencies
        q, k = (q, k) if in_place else _copies(q, k)
        _rotate(name, q, k, positions, rotary_dim, bool(interleave), lambda width: of(width, rope_scale, rope_theta, *factors), **how)
        return None if in_place else (q, k)

    space: dict[str, Any] = {"_run": run}
    exec(source, space)
    made = space[name]
    made.__doc__ = "Rotates heads by angles of positions: a table of their cosines and sines, rounded to fp32, and apply_rope_with_cos_sin_cache_inplace."
    made.__module__ = "dodona.compat"
    return made


def _by_offsets(name: str, places: tuple, rows: int) -> np.ndarray:
    return _positions(name, *places, rows)


def _by_number(name: str, places: tuple, rows: int) -> np.ndarray:
    positions = _numbers(name, "pos_ids", places[0], 1)
    if len(positions) != rows:
        raise refuse(name, f"has {len(positions)} positions, expected {rows}", argument="pos_ids", code="bad_shape")
    return positions


ROTATIONS = tuple(
    _rotations(f"{base}{by}{end}", where, count, bool(end), scale, theta, "llama31" in base)
    for base, scale, theta in (("apply_rope", 1, 1e4), ("apply_llama31_rope", 8, 5e5))
    for by, where, count in (("", _by_offsets, 2), ("_pos_ids", _by_number, 1))
    for end in ("", "_inplace")
)


# ---- norms ----


def _scale(name: str, scale: Any, model: Any) -> Any:
    """One number, as an array."""
    array = bare(scale)
    if isinstance(array, (int, float)) and not isinstance(array, bool):
        return as_given(np.array([array], np.float32), model)
    if not hasattr(array, "shape") or int(np.prod(tuple(array.shape))) != 1 or dtype_name(array.dtype) != "f32":
        found = f"is {array.dtype} {list(array.shape)}" if hasattr(array, "shape") else f"is {array!r}"
        raise refuse(name, f"{found}, expected a number or one float32", argument="scale", code="bad_dtype")
    return array.reshape(1)


def _quantized(name: str, out: Any, values: Any, scale: Any, **how: Any) -> None:
    """Codes of fp32 numbers times the reciprocal of the scale, saturating."""
    kind = type_of(out)
    if tuple(bare(out).shape) != tuple(bare(values).shape):
        raise refuse(name, f"has shape {list(bare(out).shape)}, expected {list(bare(values).shape)}", argument="out", code="bad_shape")
    if kind in ("f8_e4m3", "u8"):
        function("sgl_per_tensor_quant_fp8")(values, output_q=out, output_s=scale, is_static=True, **how)
        return
    if kind != "f8_e5m2" or not is_torch(bare(out)):
        raise refuse(name, f"is {kind}, offered is float8_e4m3fn, of torch float8_e5m2 too", kind=NotOffered, code="unsupported", argument="out")
    bare(out).copy_((values * (1.0 / scale)).clamp(-57344.0, 57344.0))


def _ready(name: str, out: Any, input: Any, weight: Any) -> None:
    for argument, value in (("out", out), ("input", input), ("weight", weight)):
        if not hasattr(bare(value), "shape"):
            raise refuse(name, f"is {value!r}, expected an array", argument=argument, code="bad_dtype")
    if reason := not_writable(bare(out)):
        raise refuse(name, f"{reason}, and is written", argument="out")


def rmsnorm_quant(out: Any, input: Any, weight: Any, scale: Any, eps: float = 1e-6, enable_pdl: Optional[bool] = None, **how: Any) -> None:
    """rmsnorm of the widened input, in fp32, over the scale."""
    name = "rmsnorm_quant"
    _ready(name, out, input, weight)
    by = _scale(name, scale, bare(input))
    try:
        _quantized(name, out, function("rmsnorm")(as_f32(bare(input)), as_f32(bare(weight)), eps=eps, **how), by)
    except Error as error:
        raise as_refused(error, name) from None


def fused_add_rmsnorm_quant(
    out: Any, input: Any, residual: Any, weight: Any, scale: Any, eps: float = 1e-6, enable_pdl: Optional[bool] = None, **how: Any
) -> None:
    """The residual becomes the sum; rmsnorm of the fp32 sum, over the scale. The input stays."""
    name = "fused_add_rmsnorm_quant"
    _ready(name, out, input, weight)
    if not hasattr(bare(residual), "shape") or tuple(bare(residual).shape) != tuple(bare(input).shape) or type_of(residual) != type_of(input):
        found = f"is {bare(residual).dtype} {list(bare(residual).shape)}" if hasattr(bare(residual), "shape") else f"is {residual!r}"
        raise refuse(name, f"{found}, expected what input is", argument="residual", code="bad_shape")
    if reason := not_writable(bare(residual)):
        raise refuse(name, f"{reason}, and is written", argument="residual")
    by = _scale(name, scale, bare(input))
    wide, total = dense_copy(as_f32(bare(input))), dense_copy(as_f32(bare(residual)))
    try:
        function("fused_add_rmsnorm")(wide, total, as_f32(bare(weight)), eps=eps, **how)
        _quantized(name, out, wide, by)
    except Error as error:
        raise as_refused(error, name) from None
    _store(bare(residual), total)


def _store(target: Any, values: Any) -> None:
    """fp32 numbers, rounded to nearest even; 16-bit codes in integers are bf16."""
    if is_torch(target):
        target.copy_(values)
    elif target.dtype == np.uint16:
        target[...] = rounded(values, "bf16").view(np.uint16)
    else:
        target[...] = values.astype(target.dtype)


# What is here, by the module in which upstream has it.
PLACES = {"flashinfer.rope": ROTATIONS, "flashinfer.norm": (rmsnorm_quant, fused_add_rmsnorm_quant)}
