"""Products of codes of 8 and 4 bits of which 32 neighbours along K share an exponent (MXFP8, MXFP4), or 16 of 4 bits a scale. A code times a power of two is a number that bf16
holds: rows and weights are widened, and the product of bf16 does the rest. Its fp32 sums are of the same exact products as those of a tensor core
that takes the codes."""

from __future__ import annotations

import functools
from typing import Any, Optional

import numpy as np

from .._arrays import is_torch, like_torch, numpy_dtype
from ._adapt import NotOffered, named, refuse
from ._hooks.arrays import bare, dense, rounded, type_of
from ._hooks.checks import of_shape, of_type, shape_of
from ._layouts import E2M1, E4M3, as_given, codes_of, get_shuffle_matrix_a_row_indices, scales_of, tile_of
from ._products import BF16, _choice, _dtype, _integers, _into, _product, _put, _room, _turned

GROUP = 32  # codes of one exponent
ROWS_AT_ONCE = 1 << 22  # codes that are widened together

E5M2 = (np.arange(256, dtype=np.uint16) << 8).view(np.float16).astype(np.float32)
NUMBERS = {"f8_e4m3": E4M3, "f8_e5m2": E5M2, "e2m1": np.tile(E2M1, 16)}


@functools.cache
def _table(kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Of an exponent times 256 and a code the number in bf16, and whether it is another one there."""
    exponents = np.where(np.arange(256) == 255, np.nan, np.ldexp(1.0, np.arange(256) - 127))
    with np.errstate(over="ignore", invalid="ignore"):
        exact = exponents[:, None] * NUMBERS[kind].astype(np.float64)
        held = rounded(exact.astype(np.float32), "bf16").view(np.uint16)
    wide = (held.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return held.reshape(-1), ((wide != exact) & ~np.isnan(exact)).reshape(-1)


def widened(name: str, argument: str, codes: np.ndarray, scales: np.ndarray, kind: str, group: int = GROUP) -> np.ndarray:
    """bf16 numbers [rows, K], in words of 16 bits, of codes [rows, K] whose exponents are [rows, K / group]."""
    table, lossy = _table(kind)
    whole = np.empty(codes.shape, np.uint16)
    odd = scales.size and (scales.min() < 20 or scales.max() > 235)  # where a code's number may not be bf16's
    for begin in range(0, len(codes), step := max(ROWS_AT_ONCE // max(codes.shape[1], 1), 1)):
        part = slice(begin, begin + step)
        at = np.repeat(scales[part].astype(np.uint16) << 8, group, axis=1)[:, : codes.shape[1]] | codes[part]
        if odd and lossy[at].any():
            raise refuse(name, "holds numbers beyond those of bf16 under its scales", kind=NotOffered, code="unsupported", argument=argument)
        whole[part] = table[at]
    return whole


def as_bf16(words: np.ndarray, model: Any) -> Any:
    return like_torch(words, "bf16", model) if is_torch(model) else words.view(numpy_dtype("bf16"))


def halves(packed: np.ndarray) -> np.ndarray:
    """Codes of 4 bits, the low ones first."""
    return np.stack([packed & 15, packed >> 4], axis=-1).reshape(*packed.shape[:-1], -1)


def _codes(name: str, argument: str, value: Any, *kinds: str) -> np.ndarray:
    of_type(name, argument, value, *kinds)
    return codes_of(dense(bare(value)))


def _tiled(name: str, argument: str, scales: Any, rows: int, inner: int, eight: bool) -> np.ndarray:
    """Exponents [rows, K / 32] of scales in tiles, flat."""
    of_type(name, argument, scales, "u8", "f8_e8m0")
    blocks, high = -(-inner // GROUP), 8 if eight else 128
    wanted = -(-rows // high) * high * -(-blocks // 4) * 4
    if int(np.prod(tuple(bare(scales).shape))) != wanted:
        layout = "8x4" if eight else "128x4"
        raise refuse(name, f"shape mismatch for swizzled layout: {list(bare(scales).shape)}, expected [{wanted}] in tiles of {layout}", argument=argument, code="bad_shape")
    return scales_of(codes_of(dense(bare(scales))), rows, blocks, tile_of(True, eight))


def _matrices(name: str, a: Any, b: Any, rank: int) -> tuple[tuple, tuple]:
    for argument, value in (("a", a), ("b", b)):
        if len(getattr(bare(value), "shape", ())) != rank:
            raise refuse(name, f"accepts {rank}d tensors, got {list(getattr(bare(value), 'shape', ()))}", argument=argument, code="bad_shape")
    left, right = tuple(bare(a).shape), tuple(bare(b).shape)
    if left[-1] != right[-2] or left[:-2] != right[:-2]:
        raise refuse(name, f"has shape {list(right)}: K dimension mismatch with a of {list(left)}", argument="b", code="bad_shape")
    if right[-1] < 128 or left[-1] < 128:
        raise refuse(name, f"MXFP8 requires n >= 128 and k >= 128, got n={right[-1]}, k={left[-1]}", code="bad_shape")
    for argument, value in (("a", a), ("b", b)):
        if type_of(value) != "f8_e4m3":
            raise refuse(name, f"must be a float8_e4m3fn tensor, got {bare(value).dtype}", argument=argument, code="bad_dtype")
    return left, right


@named("mm_mxfp8")
def mm_mxfp8(
    a: Any, b: Any, a_descale: Any, b_descale: Any, out: Optional[Any] = None, out_dtype: Any = BF16, use_8x4_sf_layout: bool = False,
    backend: str = "auto", **how: Any,
) -> Any:  # fmt: skip
    """a [M, K] times b [K, N] in columns, e4m3 under exponents in tiles; the trtllm backend has the rows of b^T in shuffle_matrix_a's order."""
    name = "mm_mxfp8"
    _choice(name, "backend", backend, "cutlass", "cute-dsl", "trtllm", "cudnn", "b12x", "auto")
    (rows, inner), (_, columns) = _matrices(name, a, b, 2)
    for argument, scales in (("a_descale", a_descale), ("b_descale", b_descale)):
        if len(bare(scales).shape) not in (1, 2):
            raise refuse(name, f"must be 1D (swizzled) or 2D (non-swizzled), got {list(bare(scales).shape)}", argument=argument, code="bad_shape")
        if type_of(scales) != "u8":
            raise refuse(name, f"must be a uint8 tensor, got {bare(scales).dtype}", argument=argument, code="bad_dtype")
        if len(bare(scales).shape) == 2:
            raise refuse(name, f"{backend} mm_mxfp8 requires 1D swizzled block scales, got 2D linear ones", argument=argument, code="bad_shape")
    if use_8x4_sf_layout and backend not in ("trtllm", "auto"):
        raise refuse(name, f"{backend} mm_mxfp8 requires 1D 128x4-swizzled block scales", argument="use_8x4_sf_layout")
    kind = _dtype(name, "out_dtype", out_dtype, "bf16", "f16")
    _room(name, out, (rows, columns), kind)
    exponents = _tiled(name, "a_descale", a_descale, rows, inner, bool(use_8x4_sf_layout)), _tiled(name, "b_descale", b_descale, columns, inner, False)
    weights = _codes(name, "b", _turned(b), "f8_e4m3")
    if backend == "trtllm":
        order = np.argsort(np.asarray(get_shuffle_matrix_a_row_indices(weights, 128)))
        weights, exponents = weights[order], (exponents[0], exponents[1][order])
    left = as_bf16(widened(name, "a", _codes(name, "a", a, "f8_e4m3"), exponents[0], "f8_e4m3"), bare(a))
    right = as_bf16(widened(name, "b", weights, exponents[1], "f8_e4m3"), bare(a))
    return _product(name, left, _turned(right), None, out, kind, how)


@named("bmm_mxfp8")
def bmm_mxfp8(A: Any, B: Any, A_scale: Any, B_scale: Any, dtype: Any, out: Optional[Any] = None, backend: str = "auto", **how: Any) -> Any:
    """Of each matrix of a batch, whose rows lie one behind the other in the tiles of the exponents."""
    name = "bmm_mxfp8"
    _choice(name, "backend", backend, "cudnn", "cutlass", "auto")
    (batch, rows, inner), (_, _, columns) = _matrices(name, A, B, 3)
    for argument, scales in (("A_scale", A_scale), ("B_scale", B_scale)):
        if len(bare(scales).shape) != 1:
            raise refuse(name, f"requires 1D swizzled scale tensors, got {list(bare(scales).shape)}", argument=argument, code="bad_shape")
    kind = _dtype(name, "dtype", dtype, "bf16", "f16")
    _room(name, out, (batch, rows, columns), kind)
    wide = []
    for argument, value, scales, high in (("A", A, A_scale, rows), ("B", _turned(B), B_scale, columns)):
        exponents = _tiled(name, f"{argument}_scale", scales, batch * high, inner, False)
        words = widened(name, argument, _codes(name, argument, value, "f8_e4m3").reshape(-1, inner), exponents, "f8_e4m3")
        wide.append(as_bf16(words.reshape(batch, high, inner), bare(A)))
    parts = [bare(_product(name, left, _turned(right), None, None, kind, how)) for left, right in zip(*wide)]
    made = _stacked(parts, (batch, rows, columns), kind, bare(A))
    return _into(out, made)


def _stacked(parts: list, shape: tuple, kind: str, model: Any) -> Any:
    if is_torch(model):
        import torch

        return torch.stack(parts) if parts else torch.zeros(shape, dtype={"bf16": torch.bfloat16, "f16": torch.float16}[kind])
    return np.stack(parts) if parts else np.zeros(shape, numpy_dtype(kind))


@named("group_gemm_mxfp8_mxfp4_nt_groupwise")
def group_gemm_mxfp8_mxfp4_nt_groupwise(
    a: Any, b: Any, a_scale: Any, b_scale: Any, m_indptr: Any, mma_sm: int = 1, tile_m: int = 128, tile_n: int = 128, tile_k: int = 128,
    swap_ab: bool = True, out: Optional[Any] = None, out_dtype: Optional[Any] = None, **how: Any,
) -> Any:  # fmt: skip
    """Rows of one group after another, codes of 8 bits, each group times a matrix [N, K] of packed e2m1. A group's exponents fill whole tiles of 128 rows."""
    name = "group_gemm_mxfp8_mxfp4_nt_groupwise"
    for argument, value, values in (
        ("mma_sm", mma_sm, (1, 2)), ("tile_m", tile_m, (128,)), ("tile_n", tile_n, (32, 64, 128, 192, 256)), ("tile_k", tile_k, (128, 256)), ("swap_ab", swap_ab, (True, False)),
    ):  # fmt: skip
        _choice(name, argument, value, *values)
    of_type(name, "a", a, "f8_e4m3", "f8_e5m2")
    of_type(name, "b", b, "u8")
    (rows, inner), (groups, columns, packed) = shape_of(name, "a", a, 2), shape_of(name, "b", b, 3)
    if packed * 2 != inner:
        raise refuse(name, f"has {packed} columns, expected {inner // 2} of two codes as a has {inner}", argument="b", code="bad_shape")
    if columns % 8 or inner % 128:
        raise refuse(name, f"has shape {[groups, columns, packed]}, expected n a multiple of 8 and k one of 128", argument="b", code="bad_shape")
    kind = _dtype(name, "out_dtype", out_dtype if out_dtype is not None else "bf16" if out is None else type_of(out), "bf16", "f16")
    _room(name, out, (rows, columns), kind)
    ends = _integers(name, "m_indptr", m_indptr, (groups + 1,))
    if ends[0] != 0 or ends[-1] > rows or (np.diff(ends) < 0).any():
        raise refuse(name, f"is {ends.tolist()}, expected offsets from 0 to at most {rows} that do not fall", argument="m_indptr")
    begins = (ends + np.arange(groups + 1) * 127) // 128 * 128
    blocks, high = inner // GROUP, -(-columns // 128) * 128
    for argument, scales, least in (("a_scale", a_scale, int(begins[-1]) * blocks), ("b_scale", b_scale, groups * high * blocks)):
        of_type(name, argument, scales, "u8", "f8_e8m0")
        if int(np.prod(tuple(bare(scales).shape))) < least:
            raise refuse(name, f"has shape {list(bare(scales).shape)}, expected {least} exponents in tiles of 128 x 4", argument=argument, code="bad_shape")
    of_rows = scales_of(codes_of(dense(bare(a_scale))).reshape(-1)[: int(begins[-1]) * blocks], int(begins[-1]), blocks, 128)
    of_weights = codes_of(dense(bare(b_scale))).reshape(-1)[: groups * high * blocks].reshape(groups, -1)
    left, right = codes_of(dense(bare(a))), codes_of(dense(bare(b)))
    made = bare(out) if out is not None else _stacked([], (rows, columns), kind, bare(a_scale))
    for group, (begin, end) in enumerate(zip(ends, ends[1:])):
        if begin == end:
            continue
        first = begins[group]
        x = widened(name, "a", left[begin:end], of_rows[first : first + end - begin], type_of(a))
        w = widened(name, "b", halves(right[group]), scales_of(of_weights[group], columns, blocks, 128), "e2m1")
        _put(made[begin:end], bare(_product(name, as_bf16(x, bare(a_scale)), _turned(as_bf16(w, bare(a_scale))), None, None, kind, how)))
    return made if out is None else out


# ---- e2m1 under scales of 16 columns, in 16-bit rows' products ----


def _weights_of_four_bits(name: str, b: Any, b_descale: Any, alpha: Any, block_size: int) -> tuple[int, int]:
    """Rows and columns of what mm_bf16_fp4 takes: packed e2m1, and e4m3 scales in tiles of 128 x 4."""
    columns, packed = shape_of(name, "b", b, 2)
    of_type(name, "b", b, "u8")
    _choice(name, "block_size", block_size, 16)
    if packed % 8:
        raise refuse(name, f"K={2 * packed} must be a multiple of block_size={block_size}", argument="b", code="bad_shape")
    needed = -(-columns // 128) * -(-packed // 32) * 512
    of_type(name, "b_descale", b_descale, "u8", "f8_e4m3")
    if (room := int(np.prod(tuple(bare(b_descale).shape)))) < needed:
        text = f"b_descale has {room} bytes but the 128x4-swizzled layout for N={columns}, K_sf={packed // 8} requires at least {needed}"
        raise refuse(name, text, argument="b_descale", code="bad_shape")
    if alpha is not None:
        of_shape(name, "alpha", alpha, (1,))
        of_type(name, "alpha", alpha, "f32")
    return columns, 2 * packed


FOUR_BIT_BACKENDS = ("cudnn", "cute-dsl")


@named("prepare_bf16_fp4_weights")
def prepare_bf16_fp4_weights(b: Any, b_descale: Any, alpha: Optional[Any] = None, *, backend: str, block_size: int = 16) -> tuple[Any, Any, Any]:
    """What the kernels want is here what nvfp4_quantize gives."""
    name = "prepare_bf16_fp4_weights"
    _weights_of_four_bits(name, b, b_descale, alpha, block_size)
    _choice(name, "backend", backend, *FOUR_BIT_BACKENDS)
    return b, b_descale, alpha


@named("mm_bf16_fp4")
def mm_bf16_fp4(
    a: Any, b: Any, b_descale: Any, alpha: Optional[Any] = None, *, backend: str, out_dtype: Optional[Any] = None, out: Optional[Any] = None,
    block_size: int = 16, enable_pdl: bool = True, **how: Any,
) -> Any:  # fmt: skip
    """a in bf16 times weights [N, K] transposed: a code times its scale is a number that bf16 holds, and alpha multiplies the fp32 sums."""
    name = "mm_bf16_fp4"
    rows, inner = shape_of(name, "a", a, 2)
    of_type(name, "a", a, "bf16")
    _choice(name, "backend", backend, *FOUR_BIT_BACKENDS)
    columns, depth = _weights_of_four_bits(name, b, b_descale, alpha, block_size)
    if depth != inner:
        raise refuse(name, f"has {depth} columns, expected {inner} as a has", argument="b", code="bad_shape")
    kind = _dtype(name, "out_dtype", "bf16" if out_dtype is None else out_dtype, "bf16", "f16")
    _room(name, out, (rows, columns), kind)
    scales = E4M3[scales_of(codes_of(dense(bare(b_descale))), columns, inner // 16, 128)]
    words = rounded(E2M1[halves(codes_of(dense(bare(b))))] * np.repeat(scales, 16, axis=1), "bf16").view(np.uint16)
    weights = as_bf16(words, bare(a))
    if alpha is None:
        return _into(out, _product(name, a, _turned(weights), None, None, kind, how))
    sums = bare(_product(name, a, _turned(weights), None, None, "f32", how))
    return _into(out, rounded(sums * np.float32(bare(alpha).reshape(-1)[0]), kind))


def _unswizzle_sf_128x4(sf_swizzled: Any, n: int, k_sf: int) -> Any:
    """Bytes of scales row by row, of those in tiles."""
    return as_given(np.ascontiguousarray(scales_of(codes_of(dense(bare(sf_swizzled))), n, k_sf, 128)), bare(sf_swizzled))


for _made, _backends in ((mm_bf16_fp4, ("cudnn",)), (mm_mxfp8, ("cutlass", "cute-dsl", "trtllm", "cudnn")), (bmm_mxfp8, ("cudnn",))):  # of upstream's decorator, on a B200
    _made.is_backend_supported = lambda backend, cc=None, known=_backends: backend in known
    _made.is_compute_capability_supported = lambda cc: True

def _b12x_mxfp8_dsl_supported() -> bool:
    """Of a GPU that a B200 is not."""
    return False


def _check_mxfp8_gemm_strides(a: Any, b: Any, backend: str) -> None:
    for argument, value, axis, wanted in (("A", a, -1, "row-major [batch, m, k]"), ("B", b, -2, "column-major [batch, k, n]")):
        if value.stride(axis) != 1:
            raise refuse(f"{backend} mxfp8 GEMM", f"expects {argument} to be {wanted} (K contiguous); got strides {tuple(value.stride())}", argument=argument)


def _check_cudnn_bmm_mxfp8_scale_len(a: Any, b: Any, a_scale: Any, b_scale: Any) -> None:
    for argument, scales, rows, inner in (("A_scale", a_scale, a.shape[0] * a.shape[1], a.shape[2]), ("B_scale", b_scale, b.shape[0] * b.shape[2], b.shape[1])):
        wanted = -(-rows // 128) * 128 * -(-inner // (4 * GROUP)) * 4
        if int(np.prod(tuple(scales.shape))) != wanted:
            raise refuse("bmm_mxfp8", f"cuDNN expects {argument} to contain {wanted} elements in tiles of 128 x 4, got {list(scales.shape)}", argument=argument, code="bad_shape")


PLACES = {
    "flashinfer.gemm.gemm_bf16_fp4": (_unswizzle_sf_128x4, mm_bf16_fp4, prepare_bf16_fp4_weights),
    "flashinfer.gemm.gemm_mm_mxfp8_cute_dsl": (_b12x_mxfp8_dsl_supported,),
    "flashinfer.gemm.gemm_base": (mm_mxfp8, bmm_mxfp8, group_gemm_mxfp8_mxfp4_nt_groupwise, _check_mxfp8_gemm_strides, _check_cudnn_bmm_mxfp8_scale_len),
}
