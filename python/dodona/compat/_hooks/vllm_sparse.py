"""vLLM's copies of DeepSeek-V3.2's caches: rows of 656 bytes (512 e4m3, 4 fp32 scales, 64 bf16 numbers), and the indexer's keys under scales of their own; and of latent rows
whose last part is rotated on the way."""

from __future__ import annotations

from typing import Any, Optional

import numpy as np

from ..._arrays import as_dtype, is_torch
from ..._ops import function
from .._adapt import NotOffered, named, refuse
from .._layouts import as_given
from .arrays import as_f32, bare, bytes_as, dense, type_of
from .checks import of_shape, of_type, shape_of, writable
from .vllm import at, concat_and_cache_mla, numbers, slots_of

NOPE, SCALES, ROPE = 512, 16, 64
ROW = NOPE + SCALES + 2 * ROPE
E4M3_MAX, LEAST_AMAX = np.float32(448), np.float32(1e-4)


def _bytes(value: Any) -> np.ndarray:
    raw = bare(bytes_as(bare(value), "u8"))
    return raw.numpy() if is_torch(raw) else np.asarray(raw)


def _places(name: str, block_table: Any, requests: np.ndarray, places: np.ndarray, size: int, pages: int) -> tuple[np.ndarray, np.ndarray]:
    """Page and row of each token of a request."""
    table = numbers(name, "block_table", block_table, "i32")
    if places.size and places.max() // size >= table.shape[1]:
        raise refuse(name, f"holds {table.shape[1]} pages of a request, expected token {places.max()}", argument="block_table")
    chosen = table[requests, places // size]
    if chosen.size and not 0 <= chosen.min() <= chosen.max() < pages:
        raise refuse(name, f"names pages {chosen.min()} to {chosen.max()}, expected 0 to {pages - 1}", argument="block_table")
    return chosen.astype(np.int64), places % size


@named("cp_gather_and_upconvert_fp8_kv_cache")
def cp_gather_and_upconvert_fp8_kv_cache(
    src_cache: Any, dst: Any, block_table: Any, workspace_starts: Any, batch_size: int, seq_starts: Any = None
) -> None:
    """Rows of requests one after the other, bf16 [tokens, 576]: e4m3 codes times their scales, rounded, and the 64 numbers beside as they are (dequantize_k_cache). Request r has
    the tokens from seq_starts[r] (0) on and the rows from workspace_starts[r] to the next request's; the last one all rows behind."""
    name = "cp_gather_and_upconvert_fp8_kv_cache"
    pages, size, _ = shape_of(name, "src_cache", src_cache, 3)
    of_shape(name, "src_cache", src_cache, (pages, size, ROW))
    of_type(name, "src_cache", src_cache, "u8", "f8_e4m3")
    total, _ = shape_of(name, "dst", dst, 2)
    of_shape(name, "dst", dst, (total, NOPE + ROPE))
    of_type(name, "dst", dst, "bf16")
    writable(name, "dst", dst)
    batch, _ = shape_of(name, "block_table", block_table, 2)
    begins = numbers(name, "workspace_starts", workspace_starts, "i32").astype(np.int64)
    if not isinstance(batch_size, (int, np.integer)) or not 1 <= batch_size <= min(batch, len(begins)):
        raise refuse(name, f"is {batch_size!r}, expected 1 to {min(batch, len(begins))}", argument="batch_size")
    begins = begins[:batch_size]
    if begins[0] != 0 or (np.diff(begins) < 0).any() or begins[-1] > total:
        raise refuse(name, f"is {begins.tolist()}, expected rows from 0 to at most {total} that do not fall", argument="workspace_starts")
    starts = np.zeros(batch_size, np.int64)
    if seq_starts is not None:
        starts = numbers(name, "seq_starts", seq_starts, "i32").astype(np.int64)[:batch_size]
        if starts.shape != (batch_size,) or (starts < 0).any():
            raise refuse(name, f"is {starts.tolist()}, expected {batch_size} first tokens", argument="seq_starts")
    requests = np.repeat(np.arange(batch_size), np.diff(np.append(begins, total)))
    page, row = _places(name, block_table, requests, np.arange(total) - begins[requests] + starts[requests], size, pages)
    rows = np.ascontiguousarray(_bytes(src_cache)[page, row])
    if not total:
        return
    target = bare(dst)
    codes = as_given(rows.reshape(total, 1, ROW), target)
    made = bare(function("dequantize_k_cache")(codes))
    target[...] = made.reshape(total, NOPE + ROPE) if is_torch(made) else made.reshape(total, NOPE + ROPE).view(target.dtype)


def _blocks_of_keys(name: str, kv_cache: Any, width: int, size_of_block: int) -> tuple[np.ndarray, int, int]:
    """A page's bytes in one row: the codes of all its tokens, then their scales."""
    pages, size, stride = shape_of(name, "kv_cache", kv_cache, 3)
    of_type(name, "kv_cache", kv_cache, "u8", "f8_e4m3")
    if stride != width + width * 4 // size_of_block:
        raise refuse(name, f"has rows of {stride} bytes, expected {width} codes and {width * 4 // size_of_block} of scales", argument="kv_cache", code="bad_shape")
    raw = _bytes(kv_cache)
    if size and stride and raw.strides[1:] != (stride, 1):
        raise refuse(name, "has gaps within a page", argument="kv_cache", code="bad_layout")
    return np.lib.stride_tricks.as_strided(raw, (pages, size * stride), (raw.strides[0], 1)), pages, size


def _block_size(name: str, width: int, size: Any) -> None:
    if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or size < 1 or width % size or size % 4:
        raise refuse(name, f"is {size!r}, expected a multiple of 4 that divides {width}", argument="quant_block_size")


@named("indexer_k_quant_and_cache")
def indexer_k_quant_and_cache(k: Any, kv_cache: Any, slot_mapping: Any, quant_block_size: int, kv_cache_dtype: str) -> None:
    """Keys [T, D] as e4m3 under a scale for each quant_block_size numbers, s = max(amax, 1e-4) / 448, with 'ue8m0' the next power of two, x / s rounded: in a page lie the codes of
    all of its tokens, then their fp32 scales."""
    name = "indexer_k_quant_and_cache"
    tokens, width = shape_of(name, "k", k, 2)
    of_type(name, "k", k, "bf16", "f16", "f32")
    _block_size(name, width, quant_block_size)
    writable(name, "kv_cache", kv_cache)
    rows, pages, size = _blocks_of_keys(name, kv_cache, width, quant_block_size)
    slots = slots_of(name, slot_mapping, tokens, pages * size)
    kept = np.flatnonzero(slots >= 0)
    wide = np.asarray(as_f32(bare(k)).numpy() if is_torch(bare(k)) else as_f32(bare(k)), np.float32)[kept].reshape(len(kept), -1, quant_block_size)
    with np.errstate(invalid="ignore"):
        scales = np.maximum(np.nan_to_num(np.abs(wide), nan=0.0, posinf=np.inf).max(-1, initial=0), LEAST_AMAX) / E4M3_MAX
        if kv_cache_dtype == "ue8m0":
            mantissas, exponents = np.frexp(scales)
            scales = np.ldexp(np.float32(1), exponents - (mantissas == 0.5)).astype(np.float32)
        codes = np.empty((len(kept), width), np.uint8)
        if codes.size:
            quotients = (wide / scales[..., None]).reshape(len(kept), width)
            function("sgl_per_tensor_quant_fp8")(quotients, output_q=as_dtype(codes, "f8_e4m3"), output_s=np.ones(1, np.float32), is_static=True)
    page, row, each = slots[kept] // size, slots[kept] % size, width * 4 // quant_block_size
    rows[page[:, None], row[:, None] * width + np.arange(width)] = codes
    rows[page[:, None], size * width + row[:, None] * each + np.arange(each)] = np.ascontiguousarray(scales, np.float32).view(np.uint8).reshape(len(kept), each)


@named("cp_gather_indexer_k_quant_cache")
def cp_gather_indexer_k_quant_cache(kv_cache: Any, dst_k: Any, dst_scale: Any, block_table: Any, cu_seq_lens: Any) -> None:
    """The indexer's keys of requests one after the other: codes [T, D], and scales [T, ...] of as many bytes as D has blocks times 4."""
    name = "cp_gather_indexer_k_quant_cache"
    total, width = shape_of(name, "dst_k", dst_k, 2)
    of_type(name, "dst_k", dst_k, "u8", "f8_e4m3")
    of_type(name, "dst_scale", dst_scale, "u8", "f8_e4m3", "f32")
    scales = _bytes(dst_scale)
    if scales.ndim != 2 or scales.shape[0] != total or not scales.shape[1] or width * 4 % scales.shape[1]:
        raise refuse(name, f"has shape {list(bare(dst_scale).shape)}, expected scales of {total} rows", argument="dst_scale", code="bad_shape")
    for argument, value in (("dst_k", dst_k), ("dst_scale", dst_scale)):
        writable(name, argument, value)
    each = scales.shape[1]
    rows, pages, size = _blocks_of_keys(name, kv_cache, width, width * 4 // each)
    batch, _ = shape_of(name, "block_table", block_table, 2)
    ends = numbers(name, "cu_seq_lens", cu_seq_lens, "i32").astype(np.int64)
    if ends.shape != (batch + 1,) or ends[0] != 0 or (np.diff(ends) < 0).any() or ends[-1] > total:
        raise refuse(name, f"is {ends.tolist()}, expected {batch + 1} ends from 0 to at most {total}", argument="cu_seq_lens")
    requests = np.repeat(np.arange(batch), np.diff(ends))
    page, row = _places(name, block_table, requests, np.arange(ends[-1]) - ends[requests], size, pages)
    _bytes(dst_k)[: ends[-1]] = rows[page[:, None], row[:, None] * width + np.arange(width)]
    scales[: ends[-1]] = rows[page[:, None], size * width + row[:, None] * each + np.arange(each)]


@named("concat_and_cache_mla_rope_fused")
def concat_and_cache_mla_rope_fused(
    positions: Any, q_pe: Any, k_pe: Any, kv_c: Any, cos_sin_cache: Any, is_neox: bool, slot_mapping: Any, kv_cache: Any, kv_cache_dtype: str,
    kv_cache_scale: Optional[Any],
) -> None:  # fmt: skip
    """rotary_embedding of q_pe [T, H, R] and k_pe [T, R] in place, then concat_and_cache_mla."""
    name = "concat_and_cache_mla_rope_fused"
    tokens, _, width = shape_of(name, "q_pe", q_pe, 3)
    of_shape(name, "k_pe", k_pe, (tokens, width))
    if kv_cache_dtype != "auto":
        raise refuse(name, f"is {kv_cache_dtype!r}, offered is 'auto'", kind=NotOffered, code="unsupported", argument="kv_cache_dtype")
    for argument, value in (("q_pe", q_pe), ("k_pe", k_pe)):
        writable(name, argument, value)
    pages, size, _ = shape_of(name, "kv_cache", kv_cache, 3)
    slots_of(name, slot_mapping, tokens, pages * size)
    query, key = (dense(bare(value)) for value in (q_pe, k_pe))
    function("rotary_embedding")(positions, query.reshape(tokens, -1), key, width, cos_sin_cache, bool(is_neox))
    for target, made in ((bare(q_pe), query), (bare(k_pe), key)):
        if target is not made:
            target[...] = made
    concat_and_cache_mla(kv_c, key, kv_cache, slot_mapping, "auto", kv_cache_scale)


SPARSE = (concat_and_cache_mla_rope_fused, cp_gather_and_upconvert_fp8_kv_cache, cp_gather_indexer_k_quant_cache, indexer_k_quant_and_cache)
