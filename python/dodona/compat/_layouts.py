"""FlashInfer's functions around quantized weights that are no kernels: the orders in which its kernels want them, and the numbers that codes
stand for. NumPy arrays and torch tensors alike, and what is given back is of the kind that came."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._arrays import is_torch
from ._adapt import refuse
from ._hooks.arrays import bare, bytes_as

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
E2M1_PAIRS = np.stack([E2M1[np.arange(256) & 15], E2M1[np.arange(256) >> 4]], axis=-1).view(np.uint64).reshape(256)  # both numbers of a byte
E4M3 = np.array([(-1) ** (c >> 7) * ((c & 7) * 2.0**-9 if not c >> 3 & 15 else (8 + (c & 7)) * 2.0 ** ((c >> 3 & 15) - 10)) for c in range(256)], np.float32)
E4M3[[0x7F, 0xFF]] = np.nan


def codes_of(array: Any) -> np.ndarray:
    """The bytes as they lie, in NumPy."""
    raw = bare(bytes_as(bare(array), "u8"))
    return raw.numpy() if is_torch(raw) else np.asarray(raw)


def as_given(array: np.ndarray, given: Any) -> Any:
    if not is_torch(given):
        return array
    import torch

    return torch.from_numpy(array)


def powers_of_two(codes: np.ndarray) -> np.ndarray:
    """What e8m0 codes stand for, as upstream reads them: exponents of fp32, 0 for the code 0."""
    return (codes.astype(np.uint32) << 23).view(np.float32)


def scales_of(codes: np.ndarray, rows: int, columns: int, tile: int) -> np.ndarray:
    """Codes of scales row by row, [rows, columns]; those of a tile lie in blocks of so many rows and 4 columns, padded."""
    flat = codes.reshape(-1)
    if tile == 1:
        return flat[: rows * columns].reshape(rows, columns)
    if tile == 8:
        tiles = flat.reshape(-1, -(-columns // 4), 8, 4)
        return tiles.transpose(0, 2, 1, 3).reshape(tiles.shape[0] * 8, -1)[:rows, :columns]
    tiles = flat.reshape(-1, -(-columns // 4), 32, 4, 4)
    return tiles.transpose(0, 3, 2, 1, 4).reshape(tiles.shape[0] * 128, -1)[:rows, :columns]


def tile_of(swizzled: bool, eight: bool) -> int:
    """Rows of a tile."""
    return (8 if eight else 128) if swizzled else 1


def spread(scales: np.ndarray, size: int) -> np.ndarray:
    return np.repeat(scales, size, axis=1)


def e2m1_values(codes: np.ndarray) -> np.ndarray:
    """[M, K/2] bytes as [M, K] numbers; the low half comes first."""
    return E2M1_PAIRS[codes].view(np.float32).reshape(codes.shape[0], 2 * codes.shape[1])


# ---- what codes stand for ----


def e2m1_and_ufp8sf_scale_to_float(
    e2m1_tensor: Any,
    ufp8_scale_tensor: Any,
    global_scale_tensor: Any = None,
    sf_vec_size: int = 16,
    ufp8_type: int = 1,
    is_sf_swizzled_layout: bool = True,
    is_sf_8x4_layout: bool = False,
) -> Any:
    """Numbers [M, K] of packed e2m1 codes; scales are e8m0 (ufp8_type 0), or e4m3 (1) and then times the global scale."""
    if ufp8_type == 1 and global_scale_tensor is None:
        raise refuse("e2m1_and_ufp8sf_scale_to_float", "is missing, expected with ufp8_type=1", argument="global_scale_tensor", code="missing_argument")
    values = e2m1_values(codes_of(e2m1_tensor))
    scales = scales_of(codes_of(ufp8_scale_tensor), values.shape[0], values.shape[1] // sf_vec_size, tile_of(is_sf_swizzled_layout, is_sf_8x4_layout))
    if ufp8_type == 1:
        one = np.float32(bare(global_scale_tensor).reshape(-1)[0])
        factors = E4M3[scales] * one
    else:
        factors = powers_of_two(scales)
    return as_given(values * spread(factors, sf_vec_size), e2m1_tensor)


def mxfp4_dequantize(a_fp4: Any, a_sf: Any, sfLayout: Any = 0) -> Any:
    """Numbers of what mxfp4_quantize gives."""
    layout = str(getattr(sfLayout, "name", sfLayout)).rpartition("layout_")[2]
    if layout not in ("0", "128x4", "1", "8x4", "2", "linear"):
        raise refuse("mxfp4_dequantize", f"is {sfLayout!r}, expected one of SfLayout", argument="sfLayout")
    tile = {"0": 128, "128x4": 128, "1": 8, "8x4": 8}.get(layout, 1)
    values = e2m1_values(codes_of(a_fp4))
    scales = scales_of(codes_of(a_sf), values.shape[0], values.shape[1] // 32, tile)
    return as_given(values * spread(powers_of_two(scales), 32), a_fp4)


def mxfp4_dequantize_host(weight: Any, scale: Any, group_size: int = 32) -> Any:
    """Numbers of packed e2m1 codes under e8m0 scales row by row."""
    values = e2m1_values(codes_of(weight))
    scales = codes_of(scale)
    if scales.size * group_size != values.size:
        text = f"holds {scales.size} scales, expected {values.size // group_size}, one of {group_size} codes"
        raise refuse("mxfp4_dequantize_host", text, argument="scale", code="bad_shape")
    factors = np.ldexp(np.float32(1), scales.astype(np.int32) - 127)
    return as_given(values * spread(factors.reshape(values.shape[0], -1), group_size), weight)


def mxfp8_dequantize_host(input: Any, scale_tensor: Any, is_sf_swizzled_layout: bool = True) -> Any:
    """Numbers of what mxfp8_quantize gives."""
    values = E4M3[codes_of(input)]
    scales = scales_of(codes_of(scale_tensor), values.shape[0], values.shape[1] // 32, tile_of(is_sf_swizzled_layout, False))
    return as_given(values * spread(powers_of_two(scales), 32), input)


# ---- orders of rows ----


def _rows(name: str, array: Any, multiple: int) -> int:
    if len(array.shape) != 2 or array.shape[0] % multiple:
        raise refuse(name, f"has shape {list(array.shape)}, expected a matrix with a multiple of {multiple} rows", code="bad_shape")
    return array.shape[0]


def get_shuffle_matrix_a_row_indices(input_tensor: Any, epilogue_tile_m: int) -> Any:
    """For each row of the shuffled matrix the row that it was: of 16 rows, or 32 where the tile is a multiple of 128, the kernel wants
    neighbours eight apart."""
    block = 32 if epilogue_tile_m % 128 == 0 else 16
    rows = np.arange(_rows("get_shuffle_matrix_a_row_indices", input_tensor, block), dtype=np.int64)
    inner, ways = rows % block, block // 8
    return as_given(rows - inner + inner % 8 * ways + inner // 8, input_tensor)


def get_shuffle_matrix_sf_a_row_indices(input_tensor: Any, epilogue_tile_m: int, num_elts_per_sf: int = 16) -> Any:
    """Scales lie as their rows do."""
    _rows("get_shuffle_matrix_sf_a_row_indices", input_tensor, 128)
    return get_shuffle_matrix_a_row_indices(input_tensor, epilogue_tile_m)


def get_reorder_rows_for_gated_act_gemm_row_indices(x: Any) -> Any:
    """Rows of the first half and of the second in turn."""
    half = np.arange(_rows("get_reorder_rows_for_gated_act_gemm_row_indices", x, 2) // 2, dtype=np.int64)
    return as_given(np.stack([half, half + len(half)], axis=1).reshape(-1), x)


def shuffle_matrix_a(input_tensor: Any, epilogue_tile_m: int) -> Any:
    return input_tensor[get_shuffle_matrix_a_row_indices(input_tensor, epilogue_tile_m)]


def reorder_rows_for_gated_act_gemm(x: Any) -> Any:
    return x[get_reorder_rows_for_gated_act_gemm_row_indices(x)]


def convert_to_block_layout(input_tensor: Any, blockK: int) -> Any:
    """[M, K] as [K / blockK, M, blockK]."""
    rows, columns = input_tensor.shape
    if columns % blockK:
        raise refuse("convert_to_block_layout", f"has {columns} columns, expected a multiple of {blockK}", argument="input_tensor", code="bad_shape")
    blocks = input_tensor.reshape(rows, columns // blockK, blockK)
    return blocks.permute(1, 0, 2).contiguous() if is_torch(blocks) else np.ascontiguousarray(blocks.transpose(1, 0, 2))


def _order_of(array: Any, epilogue_tile_m: int, num_elts_per_sf: int | None) -> Any:
    if num_elts_per_sf is None:
        return get_shuffle_matrix_a_row_indices(array, epilogue_tile_m)
    return get_shuffle_matrix_sf_a_row_indices(array, epilogue_tile_m, num_elts_per_sf)


def _maybe_get_cached_w3_w1_permute_indices(
    _cache_permute_indices: dict,
    dst_w3_w1_weight: Any,
    epilogue_tile_m: int,
    num_elts_per_sf: int | None = None,
    is_gated_act_gemm: bool = True,
) -> Any:
    """Rows of up and gate in turn (is_gated_act_gemm), then shuffled; kept in the caller's cache."""
    key = ("w3_w1", dst_w3_w1_weight.shape, epilogue_tile_m, num_elts_per_sf, is_gated_act_gemm)
    if key not in _cache_permute_indices:
        order = _order_of(dst_w3_w1_weight, epilogue_tile_m, num_elts_per_sf)
        gated = get_reorder_rows_for_gated_act_gemm_row_indices(dst_w3_w1_weight)[order] if is_gated_act_gemm else order
        _cache_permute_indices[key] = gated
    return _cache_permute_indices[key]


def get_w2_permute_indices_with_cache(
    _cache_permute_indices: dict, dst_w2_weight: Any, epilogue_tile_m: int, num_elts_per_sf: int | None = None
) -> Any:
    """The shuffled order of rows; kept in the caller's cache."""
    key = ("w2", dst_w2_weight.shape, epilogue_tile_m, num_elts_per_sf)
    if key not in _cache_permute_indices:
        _cache_permute_indices[key] = _order_of(dst_w2_weight, epilogue_tile_m, num_elts_per_sf)
    return _cache_permute_indices[key]


def _pad_scale_factors(unswizzled_sf: Any, m: int, n: int, sf_vec_size: int = 16) -> Any:
    """Scales [M, n / sf_vec_size] with zeros around to whole tiles of 128 x 4."""
    below, beside = -m % 128, -n % (4 * sf_vec_size) // sf_vec_size
    if not below and not beside:
        return unswizzled_sf
    return as_given(np.pad(codes_of(unswizzled_sf), ((0, below), (0, beside))), unswizzled_sf)


# What is here, by the module in which upstream has it.
PLACES = {
    "flashinfer.fp4_quantization": (_pad_scale_factors, e2m1_and_ufp8sf_scale_to_float, mxfp4_dequantize, mxfp4_dequantize_host, shuffle_matrix_a),
    "flashinfer.fp8_quantization": (mxfp8_dequantize_host,),
    "flashinfer.fused_moe.core": (
        _maybe_get_cached_w3_w1_permute_indices, convert_to_block_layout, get_reorder_rows_for_gated_act_gemm_row_indices,
        get_w2_permute_indices_with_cache, reorder_rows_for_gated_act_gemm,
    ),  # fmt: skip
    "flashinfer.utils": (get_shuffle_matrix_a_row_indices, get_shuffle_matrix_sf_a_row_indices),
}
