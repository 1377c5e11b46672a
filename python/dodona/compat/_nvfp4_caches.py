"""FlashInfer's caches of NVFP4: packed e2m1, and an e4m3 scale of 16 neighbours row by row. What is read is code times scale times one factor of all, in
fp32, rounded once; what is written is quantized as the two kernels do, each of which takes its reciprocals in its own order."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np

from .._arrays import is_torch, like_torch, numpy_dtype
from ._adapt import named, refuse
from ._hooks.arrays import as_f32, bare, dense, rounded, type_of
from ._hooks.checks import of_shape, of_type, shape_of, writable
from ._layouts import E2M1, E4M3, as_given, codes_of, e2m1_values, spread
from ._pages import _halves, _heads_first, _slots
from ._products import BF16, _dtype

BLOCK = 16  # codes of one scale
SIXTH = np.float32(1) / np.float32(6)
BETWEEN = (E2M1[:7] + E2M1[1:8]) / 2  # where the nearest code changes
MAGNITUDES = E4M3[:127]


def _nearest(numbers: np.ndarray, values: np.ndarray, between: np.ndarray) -> np.ndarray:
    """The code of the nearest of rising values, the even one where two are as near; the last of what is larger."""
    low = np.searchsorted(between, numbers, side="left")
    tied = (low < len(between)) & (numbers == between[np.minimum(low, len(between) - 1)])
    return (low + (tied & (low % 2 == 1))).astype(np.uint8)


def _codes(numbers: np.ndarray) -> np.ndarray:
    """Packed e2m1, the first of two in the low half; NaN is 6."""
    codes = _nearest(np.where(np.isnan(numbers), np.inf, np.abs(numbers)), E2M1[:8], BETWEEN) | (np.signbit(numbers) & ~np.isnan(numbers)).astype(np.uint8) << 3
    return codes[..., 0::2] | codes[..., 1::2] << 4


def _scales(numbers: np.ndarray) -> np.ndarray:
    """e4m3 codes of numbers that are not below zero, saturating."""
    between = (MAGNITUDES[1:].astype(np.float64) + MAGNITUDES[:-1]) / 2
    return np.where(np.isnan(numbers), np.uint8(0x7F), _nearest(np.where(np.isnan(numbers), 0, numbers).astype(np.float64), MAGNITUDES, between))


def _largest(blocks: np.ndarray) -> np.ndarray:
    """Of the magnitudes; NaN is passed over."""
    return np.fmax.reduce(np.abs(blocks), axis=-1, initial=0.0)


def _by_reciprocals(blocks: np.ndarray, factor: np.float32) -> tuple[np.ndarray, np.ndarray]:
    """nvfp4_kv_quantize: codes and scales of blocks [..., 16]."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        largest = _largest(blocks)
        scales = _scales(np.float32(1) / factor * (largest * SIXTH))
        by = np.where(largest != 0, np.float32(1) / (E4M3[scales] * factor), np.float32(0)).astype(np.float32)
        return _codes(blocks * by[..., None]), scales


def _by_quotients(blocks: np.ndarray, factor: np.float32) -> tuple[np.ndarray, np.ndarray]:
    """The kernels that append: a block whose scale is 0 is zeros."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        scales = _scales(_largest(blocks) / (np.float32(6) * factor))
        of = E4M3[scales] * factor
        by = np.where(of > 0, np.float32(1) / of, np.float32(0)).astype(np.float32)
        return _codes(np.where(np.isnan(blocks), np.float32(0), blocks * by[..., None])), scales


def _blocks(name: str, argument: str, value: Any) -> np.ndarray:
    """fp32 numbers [..., K / 16, 16] of 16-bit ones."""
    of_type(name, argument, value, "bf16", "f16")
    if bare(value).shape[-1] % BLOCK:
        raise refuse(name, f"K dimension ({bare(value).shape[-1]}) must be divisible by {BLOCK}", argument=argument, code="bad_shape")
    wide = as_f32(bare(value))
    array = np.asarray(wide.detach() if is_torch(wide) else wide)
    return array.reshape(*array.shape[:-1], array.shape[-1] // BLOCK, BLOCK)


def _factor(name: str, argument: str, value: Any) -> np.float32:
    """One fp32 number."""
    array = bare(value)
    if not hasattr(array, "shape") or int(np.prod(tuple(array.shape))) != 1 or type_of(value) != "f32":
        found = f"is {array.dtype} {list(array.shape)}" if hasattr(array, "shape") else f"is {array!r}"
        raise refuse(name, f"{found}: must be a scalar tensor of float32", argument=argument, code="bad_dtype")
    return np.float32(array.reshape(-1)[0])


@named("nvfp4_kv_quantize")
def nvfp4_kv_quantize(input: Any, global_scale: Any) -> tuple[Any, Any]:
    """Packed e2m1 [M, K / 2] and e4m3 codes [M, K / 16] of rows, which the global scale divides."""
    name = "nvfp4_kv_quantize"
    rows, inner = shape_of(name, "input", input, 2)
    codes, scales = _by_reciprocals(_blocks(name, "input", input), _factor(name, "global_scale", global_scale))
    return as_given(np.ascontiguousarray(codes.reshape(rows, inner // 2)), bare(input)), as_given(scales.reshape(rows, -1), bare(input))


def _numbers(name: str, codes: np.ndarray, scales: np.ndarray, factor: np.float32) -> np.ndarray:
    """fp32 [rows, K] of packed codes [rows, K / 2] under scales [rows, K / 16]."""
    with np.errstate(invalid="ignore", over="ignore"):
        return e2m1_values(codes) * spread(E4M3[scales], BLOCK) * factor


@named("nvfp4_kv_dequantize")
def nvfp4_kv_dequantize(fp4_data: Any, block_scales: Any, global_scale: Any, output_dtype: Any = BF16) -> Any:
    """16-bit numbers [M, K] of packed e2m1 under e4m3 scales and the global one."""
    name = "nvfp4_kv_dequantize"
    rows, packed = shape_of(name, "fp4_data", fp4_data, 2)
    of_type(name, "fp4_data", fp4_data, "u8")
    of_type(name, "block_scales", block_scales, "u8", "f8_e4m3")
    if packed * 2 % BLOCK:
        raise refuse(name, f"K dimension ({packed * 2}) must be divisible by {BLOCK}", argument="fp4_data", code="bad_shape")
    of_shape(name, "block_scales", block_scales, (rows, packed * 2 // BLOCK))
    kind = _dtype(name, "output_dtype", output_dtype, "bf16", "f16")
    codes, scales = codes_of(dense(bare(fp4_data))), codes_of(dense(bare(block_scales)))
    return _rounded(_numbers(name, codes, scales, _factor(name, "global_scale", global_scale)), kind, bare(fp4_data))


def _rounded(numbers: np.ndarray, kind: str, model: Any) -> Any:
    with np.errstate(over="ignore"):
        words = rounded(numbers, kind)
    words = words.view(np.uint16) if kind == "bf16" else words
    return like_torch(words, kind, model) if is_torch(model) else words.view(numpy_dtype(kind))


def _parts(name: str, caches: Any, scales: Any, kv_layout: str) -> list[tuple[str, Any, Any]]:
    """Keys and values, [pages, tokens, heads, bytes] and likewise the scales, as views whatever the layout."""
    made, heads_first = [], _heads_first(name, kv_layout)
    for which, cache, scale in zip(("keys", "values"), _halves(name, caches), _halves(name, scales, "kv_cache_sf")):
        for argument, value, kinds in (("paged_kv_cache", cache, ("u8",)), ("kv_cache_sf", scale, ("f8_e4m3",))):
            shape_of(name, argument, value, 4)
            of_type(name, argument, value, *kinds)
        cache, scale = (bare(value) for value in (cache, scale))
        if tuple(scale.shape) != (*cache.shape[:3], cache.shape[3] * 2 // BLOCK) or cache.shape[3] * 2 % BLOCK:
            text = f"has shape {list(scale.shape)} for {which} {list(cache.shape)}, expected a byte for {BLOCK} codes"
            raise refuse(name, text, argument="kv_cache_sf", code="bad_shape")
        turn = (lambda x: x.transpose(1, 2) if is_torch(x) else x.swapaxes(1, 2)) if heads_first else (lambda x: x)
        made.append((which, turn(_bytes(cache)), turn(_bytes(scale))))
    return made


def _bytes(array: Any) -> Any:
    """The same memory as bytes."""
    if not is_torch(array):
        return array.view(np.uint8)
    import torch

    return array.view(torch.uint8)


@named("nvfp4_kv_dequantize_paged")
def nvfp4_kv_dequantize_paged(
    paged_kv_cache: Any, kv_cache_sf: Any, block_tables: Any, seq_lens: Any, k_scale: Any, v_scale: Any, output_k: Any, output_v: Any, kv_layout: str = "NHD",
) -> None:  # fmt: skip
    """Rows of keys and values of requests, by their tables of pages, to [requests, tokens, heads, K]. What lies behind a request's length stays, and so does
    what a page that is not there would have."""
    name = "nvfp4_kv_dequantize_paged"
    parts = _parts(name, paged_kv_cache, kv_cache_sf, kv_layout)
    requests, width = shape_of(name, "block_tables", block_tables, 2)
    of_type(name, "block_tables", block_tables, "i32", "i64")
    of_shape(name, "seq_lens", seq_lens, (requests,))
    of_type(name, "seq_lens", seq_lens, "i32")
    factors = [_scalar(name, argument, value) for argument, value in (("k_scale", k_scale), ("v_scale", v_scale))]
    pages, size, heads = parts[0][1].shape[:3]
    tokens = shape_of(name, "output_k", output_k, 4)[1]
    for argument, output, (_, cache, _) in zip(("output_k", "output_v"), (output_k, output_v), parts):
        of_shape(name, argument, output, (requests, tokens, heads, cache.shape[3] * 2))
        of_type(name, argument, output, "bf16", "f16")
        writable(name, argument, output)
    if type_of(output_v) != type_of(output_k):
        raise refuse(name, "output_k and output_v must have the same dtype", argument="output_v", code="bad_dtype")
    if not requests or not tokens or not heads:
        return
    if width * size < tokens:
        text = f"block_tables column count insufficient for max_seq_len: {width} pages of {size} tokens, expected room for {tokens}"
        raise refuse(name, text, argument="block_tables", code="bad_shape")
    table, lengths = np.asarray(bare(block_tables)).astype(np.int64), np.asarray(bare(seq_lens))
    request, token = np.nonzero(np.arange(tokens) < lengths[:, None])
    page = table[request, token // size]
    there = (page >= 0) & (page < pages)
    request, token, page = request[there], token[there], page[there]
    for (_, cache, scales), factor, output in zip(parts, factors, (output_k, output_v)):
        kept = [np.ascontiguousarray(np.asarray(part)[page, token % size]) for part in (cache, scales)]
        numbers = _numbers(name, *(part.reshape(-1, part.shape[-1]) for part in kept), factor).reshape(len(page), heads, -1)
        at = tuple(as_given(index, bare(output)) for index in (request, token))
        bare(output)[at] = _rounded(numbers, type_of(output), bare(output))


def _scalar(name: str, argument: str, value: Any) -> np.float32:
    array = bare(value)
    if hasattr(array, "shape") and int(np.prod(tuple(array.shape))) != 1:
        raise refuse(name, f"k_scale and v_scale must be scalar tensors, has shape {list(array.shape)}", argument=argument, code="bad_shape")
    return _factor(name, argument, value)


def _captured() -> bool:
    """Whether torch records a graph of CUDA calls, of which nothing here could be part."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    return bool(cuda is not None and cuda.is_available() and cuda.is_current_stream_capturing())


def _decode_scale(name: str, argument: str, value: Any) -> np.float32:
    array = bare(value)
    if hasattr(array, "shape"):
        if int(np.prod(tuple(array.shape))) != 1:
            raise refuse(name, f"{argument} must have exactly one element, got {list(array.shape)}", argument=argument, code="bad_shape")
        array = array.reshape(-1)[0]
    number = float(array)
    if not math.isfinite(number) or number <= 0:
        raise refuse(name, f"{argument} must be a positive finite global decode scale, not {number}: k_scale and v_scale are", argument=argument)
    return np.float32(number)


def _append(name: str, append_key: Any, append_value: Any, caches: Any, scales: Any, k_scale: Any, v_scale: Any, kv_layout: str, slots_of: Any) -> None:
    """`slots_of(tokens of a page, pages)` says which rows are stored, and where."""
    factors = [_decode_scale(name, argument, value) for argument, value in (("k_scale", k_scale), ("v_scale", v_scale))]
    parts = _parts(name, caches, scales, kv_layout)
    if type_of(append_value) != type_of(append_key):
        raise refuse(name, f"append_key and append_value must have the same dtype, not {type_of(append_key)} and {type_of(append_value)}", argument="append_value", code="bad_dtype")
    for argument, value, (which, cache, _) in zip(("append_key", "append_value"), (append_key, append_value), parts):
        rows = shape_of(name, argument, value, 3)
        if rows[1:] != (cache.shape[2], cache.shape[3] * 2):
            raise refuse(name, f"has shape {list(rows)}, where the cache holds {which} of {[cache.shape[2], cache.shape[3] * 2]}", argument=argument, code="bad_shape")
    for _, *targets in parts:
        for argument, target in zip(("paged_kv_cache", "kv_cache_sf"), targets):
            writable(name, argument, target)
    rows, pages, places = slots_of(parts[0][1].shape[1], parts[0][1].shape[0])
    made = []
    for argument, value, factor in zip(("append_key", "append_value"), (append_key, append_value), factors):
        codes, of = _by_quotients(_blocks(name, argument, value)[rows], factor)
        made.append((codes.reshape(*codes.shape[:2], codes.shape[2] * BLOCK // 2), of))
    for (_, *targets), written in zip(parts, made):
        for target, values in zip(targets, written):
            at = tuple(as_given(index, target) for index in (pages, places))
            target[at] = as_given(np.ascontiguousarray(values), target)


@named("nvfp4_quantize_append_paged_kv_cache")
def nvfp4_quantize_append_paged_kv_cache(
    append_key: Any, append_value: Any, batch_indices: Any, positions: Any, paged_kv_cache: Any, kv_cache_sf: Any, kv_indices: Any, kv_indptr: Any,
    kv_last_page_len: Any, k_scale: float, v_scale: float, kv_layout: str = "NHD",
) -> None:  # fmt: skip
    """Keys and values, quantized, each at its token's place in the pages of its request."""
    name = "nvfp4_quantize_append_paged_kv_cache"
    where = lambda page, pages: _slots(name, batch_indices, positions, kv_indices, kv_indptr, page, pages)
    _append(name, append_key, append_value, paged_kv_cache, kv_cache_sf, k_scale, v_scale, kv_layout, where)


@named("nvfp4_quantize_append_paged_kv_cache_with_slot_mapping")
def nvfp4_quantize_append_paged_kv_cache_with_slot_mapping(
    append_key: Any, append_value: Any, slot_mapping: Any, paged_kv_cache: Any, kv_cache_sf: Any, k_scale: Any, v_scale: Any, kv_layout: str = "NHD",
) -> None:  # fmt: skip
    """Keys and values, quantized, at the slots that are said: page times its tokens, and the place in it. Slots that are not there are passed over."""
    name = "nvfp4_quantize_append_paged_kv_cache_with_slot_mapping"
    (count,) = shape_of(name, "slot_mapping", slot_mapping, 1)
    of_type(name, "slot_mapping", slot_mapping, "i32", "i64")
    for argument, value in (("append_key", append_key), ("append_value", append_value)):
        if shape_of(name, argument, value, 3)[0] < count:
            raise refuse(name, f"append_key and append_value must have at least slot_mapping.shape[0] rows, {count}", argument=argument, code="bad_shape")
    if _captured():
        raise refuse(name, "cannot be part of a CUDA graph: during CUDA graph capture it must be a float32 CUDA tensor", argument="k_scale")
    slots = np.asarray(bare(slot_mapping)).astype(np.int64)

    def where(page: int, pages: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        rows = np.flatnonzero((slots >= 0) & (slots < page * pages))
        return rows, slots[rows] // page, slots[rows] % page

    _append(name, append_key, append_value, paged_kv_cache, kv_cache_sf, k_scale, v_scale, kv_layout, where)


# What is here, by the module in which upstream has it.
PLACES = {
    "flashinfer.quantization.fp4_quantization": (nvfp4_kv_quantize, nvfp4_kv_dequantize, nvfp4_kv_dequantize_paged),
    "flashinfer.page": (nvfp4_quantize_append_paged_kv_cache, nvfp4_quantize_append_paged_kv_cache_with_slot_mapping),
}
