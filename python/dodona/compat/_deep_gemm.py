"""DeepGEMM's functions that are no kernels: layouts of scales, numbers and codes, what its tests measure with, and its settings."""

from __future__ import annotations

import functools
import os
import time
from typing import Any, Callable, Optional

import numpy as np

from .._arrays import is_torch
from ._adapt import NotOffered, refuse
from ._hooks.arrays import bare
from ._layouts import E2M1, as_given

LEGACY_ALIGNMENT = 128


def get_arch_major() -> int:
    """Of the GPU that torch sees, else Hopper: transform_sf_into_required_layout lays scales for the one or the other."""
    try:
        import torch

        return torch.cuda.get_device_capability()[0]
    except (ImportError, RuntimeError, AssertionError):
        return 9


# ---- settings: kept and given back, for a CPU has no tiles to choose ----

_settings: dict[str, Any] = {"tc_util": 100, "pdl": False, "compile_mode": 0, "mk_alignment": LEGACY_ALIGNMENT}


def _setter(name: str, setting: str) -> Callable[[Any], None]:
    def set_it(new_value: Any) -> None:
        _settings[setting] = new_value

    set_it.__name__ = set_it.__qualname__ = name
    return set_it


def _getter(name: str, setting: str) -> Callable[[], Any]:
    def get_it() -> Any:
        return _settings[setting]

    get_it.__name__ = get_it.__qualname__ = name
    return get_it


def get_num_sms() -> int:
    """What was set, else an H100's or a B200's."""
    return _settings.get("num_sms") or (148 if get_arch_major() == 10 else 132)


def get_theoretical_mk_alignment_for_contiguous_layout(expected_m: Optional[int] = None) -> int:
    """Rows of a tile: 128, on Blackwell the fewest of 32, 64, ... 224 that hold expected_m."""
    if get_arch_major() != 10:
        return LEGACY_ALIGNMENT
    return 224 if expected_m is None else min(max(-(-expected_m // 32) * 32, 32), 224)


SETTINGS = {
    **{f"set_{name}": _setter(f"set_{name}", name) for name in ("num_sms", "tc_util", "pdl", "compile_mode", "ignore_compile_dims", "block_size_multiple_of")},
    **{f"get_{name}": _getter(f"get_{name}", name) for name in ("tc_util", "pdl", "compile_mode")},
    "get_num_sms": get_num_sms,
    "set_mk_alignment_for_contiguous_layout": _setter("set_mk_alignment_for_contiguous_layout", "mk_alignment"),
    "get_mk_alignment_for_contiguous_layout": _getter("get_mk_alignment_for_contiguous_layout", "mk_alignment"),
    "get_theoretical_mk_alignment_for_contiguous_layout": get_theoretical_mk_alignment_for_contiguous_layout,
}


# ---- layouts of scales ----


def ceil_div(x: int, y: int) -> int:
    return -(-x // y)


def align(x: int, y: int) -> int:
    return ceil_div(x, y) * y


def get_tma_aligned_size(x: int, element_size: int) -> int:
    """The next number of elements that fill whole 16 bytes."""
    return align(x, 16 // element_size)


def _scales(name: str, sf: Any) -> np.ndarray:
    """In NumPy, [(G,) MN, K]."""
    array = bare(sf)
    if not hasattr(array, "shape") or len(array.shape) not in (2, 3) or not str(array.dtype).endswith("float32"):
        found = f"is {array.dtype} {list(array.shape)}" if hasattr(array, "shape") else f"is {array!r}"
        raise refuse(name, f"{found}, expected float32 of two or three dimensions", argument="sf", code="bad_shape")
    return array.numpy() if is_torch(array) else np.asarray(array)


def _columns_first(values: np.ndarray) -> np.ndarray:
    """The same numbers with rows as neighbours, columns as far apart as transfers by tiles want them."""
    *lead, rows, columns = values.shape
    memory = np.zeros((*lead, columns, get_tma_aligned_size(rows, values.itemsize)), values.dtype)
    placed = memory.swapaxes(-1, -2)[..., :rows, :]
    placed[...] = values
    return placed


def get_mn_major_tma_aligned_tensor(sf: Any) -> Any:
    """What lies so already comes back as it is."""
    values = _scales("get_mn_major_tma_aligned_tensor", sf)
    apart = get_tma_aligned_size(values.shape[-2], values.itemsize)
    wanted = (apart * values.shape[-1], 1, apart)[-values.ndim :]
    if tuple(stride // values.itemsize for stride in values.strides) == wanted:
        return sf
    return as_given(_columns_first(values), bare(sf))


def get_mn_major_tma_aligned_packed_ue8m0_tensor(sf: Any, psum_layout: Any = None) -> Any:
    """Exponents of four scales in a word, the first in the low byte."""
    name = "get_mn_major_tma_aligned_packed_ue8m0_tensor"
    if psum_layout is not None:
        raise refuse(name, "is given, offered is None", kind=NotOffered, code="unsupported", argument="psum_layout")
    return as_given(_columns_first(packed_exponents(_scales(name, sf))), bare(sf))


def packed_exponents(scales: np.ndarray) -> np.ndarray:
    exponents = (np.ascontiguousarray(scales).view(np.uint32) >> 23).astype(np.uint8)
    *lead, columns = exponents.shape
    room = np.zeros((*lead, align(columns, 4)), np.uint8)
    room[..., :columns] = exponents
    return room.view(np.int32)


def unpacked_exponents(words: np.ndarray, columns: int) -> np.ndarray:
    """The scales of words of four exponents."""
    exponents = np.ascontiguousarray(words).view(np.uint8)[..., :columns].astype(np.uint32)
    return (exponents << 23).view(np.float32)


def transform_sf_into_required_layout(
    sf: Any, mn: int, k: int, recipe: Any, num_groups: Optional[int] = None, is_sfa: Optional[bool] = None, disable_ue8m0_cast: bool = False, psum_layout: Any = None
) -> Any:
    """Scales as kernels of the GPU that is there take them: on Hopper fp32, columns first where each row has its own; on Blackwell exponents in words."""
    name = "transform_sf_into_required_layout"
    sizes = tuple(recipe) if isinstance(recipe, (tuple, list)) else ()
    if len(sizes) not in (2, 3):
        raise refuse(name, f"is {recipe!r}, expected (rows of a, rows of b, K), or (rows, K)", argument="recipe")
    if len(sizes) == 3 and is_sfa is None:
        raise refuse(name, "is missing, expected with a recipe of three", argument="is_sfa", code="missing_argument")
    rows, columns = sizes if len(sizes) == 2 else (sizes[0] if is_sfa else sizes[1], sizes[2])
    array = bare(sf)
    kind = str(getattr(array, "dtype", "")).rpartition(".")[2]
    if kind not in ("float32", "int32"):
        raise refuse(name, f"is {getattr(array, 'dtype', array)!r}, expected float32 or int32", argument="sf", code="bad_dtype")
    lead = () if num_groups is None else (num_groups,)
    wanted = (*lead, ceil_div(mn, rows), ceil_div(k, columns * (1 if kind == "float32" else 4)))
    if tuple(array.shape) != wanted:
        raise refuse(name, f"has shape {list(array.shape)}, expected {list(wanted)}", argument="sf", code="bad_shape")
    hopper = get_arch_major() == 9 or disable_ue8m0_cast
    if kind == "int32":
        if hopper or rows != 1 or columns not in (32, 128):
            raise refuse(name, "is int32, which kernels of Blackwell take of (1, 32) and (1, 128)", argument="sf", code="bad_dtype")
        return sf
    if hopper and columns == 128 and rows in (1, 128):
        return get_mn_major_tma_aligned_tensor(sf) if rows == 1 else sf
    if hopper or columns not in (32, 128):
        raise refuse(name, f"is {sizes}, expected scales of (1, 128) or (128, 128), or on Blackwell 32 or 128 columns", argument="recipe")
    if rows > 1:
        each = np.arange(mn) // rows
        array = array[..., each, :] if not is_torch(array) else array.index_select(-2, as_given(each, array))
    return get_mn_major_tma_aligned_packed_ue8m0_tensor(array, psum_layout)


LAYOUTS = (
    get_tma_aligned_size, get_mn_major_tma_aligned_tensor, get_mn_major_tma_aligned_packed_ue8m0_tensor, transform_sf_into_required_layout,
)  # fmt: skip


# ---- numbers as codes, with torch ----


def ceil_to_ue8m0(x: Any) -> Any:
    """The next power of two from each magnitude on, within what 8 bits of exponent hold."""
    import torch

    bits = x.float().abs().view(torch.int32)
    exponents = (bits >> 23) + ((bits & 0x7FFFFF) != 0)
    return (exponents.clamp(1, 254) << 23).to(torch.int32).view(torch.float32)


def pack_ue8m0_to_int(x: Any) -> Any:
    """Powers of two, in words of four exponents."""
    import torch

    if x.dtype != torch.float32 or x.shape[-1] % 4:
        raise refuse("pack_ue8m0_to_int", f"is {x.dtype} {list(x.shape)}, expected float32 of a multiple of four columns", argument="x", code="bad_shape")
    if bool((x.contiguous().view(torch.int32) & -0x7F800001).any()):
        raise refuse("pack_ue8m0_to_int", "holds numbers that are no powers of two", argument="x")
    return torch.from_numpy(packed_exponents(x.cpu().numpy()))


def unpack_ue8m0_from_int(packed_sf: Any) -> Any:
    import torch

    words = packed_sf.cpu().numpy()
    return torch.from_numpy(unpacked_exponents(words, words.shape[-1] * 4))


def _blocks(name: str, x: Any, rows: int, columns: int) -> Any:
    """[M / rows, rows, N / columns, columns], zeros where a matrix ends before."""
    if getattr(x, "ndim", 0) != 2:
        raise refuse(name, f"has shape {list(getattr(x, 'shape', ()))}, expected a matrix", argument="x", code="bad_shape")
    import torch

    m, n = x.shape
    padded = torch.nn.functional.pad(x, (0, align(n, columns) - n, 0, align(m, rows) - m))
    return padded.reshape(align(m, rows) // rows, rows, align(n, columns) // columns, columns)


def _scale_of(largest: Any, of: float, use_ue8m0: bool) -> Any:
    scale = largest.clamp(min=1e-4) / of
    return ceil_to_ue8m0(scale) if use_ue8m0 else scale


def _cast_blocks(name: str, x: Any, rows: int, columns: int, use_ue8m0: bool) -> tuple[Any, Any]:
    """e4m3 codes and a scale for each block: the largest magnitude becomes 448."""
    import torch

    blocks = _blocks(name, x, rows, columns)
    scales = _scale_of(blocks.float().abs().amax(dim=(1, 3), keepdim=True), 448.0, use_ue8m0)
    codes = (blocks * (1.0 / scales)).to(torch.float8_e4m3fn)
    whole = codes.reshape(blocks.shape[0] * rows, blocks.shape[2] * columns)
    return whole[: x.shape[0], : x.shape[1]].contiguous(), scales[:, 0, :, 0]


def per_token_cast_to_fp8(x: Any, use_ue8m0: bool, gran_k: int = 128, use_packed_ue8m0: bool = False) -> tuple[Any, Any]:
    codes, scales = _cast_blocks("per_token_cast_to_fp8", x, 1, gran_k, use_ue8m0)
    return codes, pack_ue8m0_to_int(scales) if use_packed_ue8m0 else scales


def per_channel_cast_to_fp8(x: Any, use_ue8m0: bool, gran_k: int = 128) -> tuple[Any, Any]:
    if getattr(x, "ndim", 0) == 2 and x.shape[0] % gran_k:
        raise refuse("per_channel_cast_to_fp8", f"has {x.shape[0]} rows, expected a multiple of {gran_k}", argument="x", code="bad_shape")
    return _cast_blocks("per_channel_cast_to_fp8", x, gran_k, 1, use_ue8m0)


def per_block_cast_to_fp8(x: Any, use_ue8m0: bool, gran_k: int = 128) -> tuple[Any, Any]:
    return _cast_blocks("per_block_cast_to_fp8", x, gran_k, gran_k, use_ue8m0)


def per_custom_dims_cast_to_fp8(x: Any, dims: tuple, use_ue8m0: bool) -> tuple[Any, Any]:
    """A scale for each place in `dims`."""
    import torch

    others = tuple(i for i in range(x.dim()) if i not in dims)
    scales = _scale_of(x.float().abs().amax(dim=others, keepdim=True), 448.0, use_ue8m0)
    return (x * (1.0 / scales)).to(torch.float8_e4m3fn), scales.squeeze()


def per_token_cast_to_fp4(x: Any, use_ue8m0: bool, gran_k: int = 128, use_packed_ue8m0: bool = False) -> tuple[Any, Any]:
    """Packed e2m1 codes, the first in the low half, and scales: the largest magnitude becomes 6. Halves go to the lesser magnitude."""
    import torch

    name = "per_token_cast_to_fp4"
    if getattr(x, "ndim", 0) != 2 or x.shape[1] % 2:
        raise refuse(name, f"has shape {list(getattr(x, 'shape', ()))}, expected rows of an even number", argument="x", code="bad_shape")
    if use_packed_ue8m0 and not use_ue8m0:
        raise refuse(name, "is True, expected False without use_ue8m0", argument="use_packed_ue8m0")
    blocks = _blocks(name, x, 1, gran_k)
    scales = _scale_of(blocks.float().abs().amax(dim=(1, 3), keepdim=True), 6.0, use_ue8m0)
    scaled = (blocks * (1.0 / scales)).reshape(x.shape[0], -1)[:, : x.shape[1]]
    bounds = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0], dtype=scaled.dtype)
    codes = torch.bucketize(scaled.abs(), bounds).to(torch.uint8)
    codes = codes | (((scaled < 0) & (codes != 0)).to(torch.uint8) << 3)
    packed, scales = (codes[:, ::2] | codes[:, 1::2] << 4).view(torch.int8).contiguous(), scales[:, 0, :, 0]
    if not use_packed_ue8m0:
        return packed, scales
    return packed, pack_ue8m0_to_int(torch.nn.functional.pad(scales, (0, -scales.shape[1] % 4), value=1.0))


def _nibbles(packed: Any) -> Any:
    import torch

    codes = packed.view(torch.uint8)
    return torch.stack([codes & 15, codes >> 4], dim=-1).flatten(-2)


def transpose_packed_fp4(a: Any) -> Any:
    """[M, N / 2] of two codes a byte as [N, M / 2]."""
    import torch

    if getattr(a, "ndim", 0) != 2 or a.dtype != torch.int8 or a.shape[0] % 2:
        raise refuse("transpose_packed_fp4", f"is {getattr(a, 'dtype', a)} {list(getattr(a, 'shape', ()))}, expected int8 of an even number of rows", argument="a", code="bad_shape")
    codes = _nibbles(a).t()
    return (codes[:, ::2] | codes[:, 1::2] << 4).contiguous().view(torch.int8)


def cast_back_from_fp4(packed: Any, sf: Any, gran_k: int = 128, use_packed_ue8m0: bool = False) -> Any:
    """The fp32 numbers that packed codes stand for."""
    import torch

    scales = unpack_ue8m0_from_int(sf) if use_packed_ue8m0 else sf
    values = torch.from_numpy(E2M1)[_nibbles(packed).long()] + 0.0
    return values * scales[:, torch.arange(values.shape[1]) // gran_k]


NUMBERS = (
    per_token_cast_to_fp4, transpose_packed_fp4, cast_back_from_fp4,
    ceil_div, align, ceil_to_ue8m0, pack_ue8m0_to_int, unpack_ue8m0_from_int, per_token_cast_to_fp8, per_channel_cast_to_fp8, per_block_cast_to_fp8,
    per_custom_dims_cast_to_fp8,
)  # fmt: skip


# ---- what its tests use ----


def calc_diff(x: Any, y: Any) -> Any:
    """One less twice the product over the sum of squares."""
    x, y = x.double(), y.double()
    squares = (x * x + y * y).sum()
    return 0.0 if squares == 0 else 1 - 2 * (x * y).sum() / squares


def count_bytes(*tensors: Any) -> int:
    sizes = (count_bytes(*t) if isinstance(t, (tuple, list)) else 0 if t is None else t.numel() * t.element_size() for t in tensors)
    return sum(sizes)


def assert_bitwise_equal(x: Any, y: Any, label: str = "") -> None:
    import torch

    alike = x.shape == y.shape and x.dtype == y.dtype
    bits = alike and torch.equal(x.contiguous().view(torch.uint8), y.contiguous().view(torch.uint8))
    if not bits:
        raise AssertionError(f"{label or 'x and y'}: {x.dtype} {list(x.shape)} and {y.dtype} {list(y.shape)} differ in their bits")


def _seconds(fn: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    fn()
    return time.perf_counter() - begin


def bench(fn: Callable[[], Any], num_warmups: int = 5, num_tests: int = 10, high_precision: bool = False) -> float:
    """Seconds of one call on this CPU."""
    return _seconds(fn)


def bench_kineto(
    fn: Callable[[], Any], kernel_names: Any, num_tests: int = 30, suppress_kineto_output: bool = False, trace_path: Optional[str] = None,
    flush_l2: bool = True, with_multiple_kernels: bool = False, barrier: Optional[Callable[[], Any]] = None,
) -> Any:  # fmt: skip
    """Seconds of one call on this CPU, for each kernel that is named."""
    took = _seconds(fn)
    return (took,) * len(kernel_names) if isinstance(kernel_names, tuple) else took


def test_filter(condition: Callable[[], bool]) -> Callable[[Callable], Callable]:
    """Runs the function where the condition holds."""

    def decorated(function: Callable) -> Callable:
        @functools.wraps(function)
        def called(*args: Any, **kwargs: Any) -> None:
            if condition():
                function(*args, **kwargs)

        return called

    return decorated


test_filter.__test__ = False  # type: ignore[attr-defined]


def ignore_env(name: str, condition: Callable[[], bool]) -> Callable[[Callable], Callable]:
    """Runs the function without the environment's variable where the condition holds."""

    def decorated(function: Callable) -> Callable:
        @functools.wraps(function)
        def called(*args: Any, **kwargs: Any) -> None:
            kept = os.environ.pop(name, None) if condition() else None
            try:
                function(*args, **kwargs)
            finally:
                if kept is not None:
                    os.environ[name] = kept

        return called

    return decorated


TESTING = {
    "bench": (bench, bench_kineto),
    "numeric": (calc_diff, count_bytes, assert_bitwise_equal),
    "utils": (get_arch_major, test_filter, ignore_env),
}
