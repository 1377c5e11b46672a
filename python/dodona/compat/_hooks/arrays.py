"""Arrays and tensors, NumPy's and torch's alike: what upstream's functions do with them whatever the kernel."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np

from ..._arrays import Typed, as_dtype, dtype_name, is_torch, numpy_dtype
from ..._library import BadType
from .._adapt import Call, refuse

Run = Callable[[Call], Any]


def as_f32(value: Any) -> Any:
    """Widened, as upstream's `.to(torch.float32)`; the same object when it is that already. 16-bit codes are bf16."""
    if is_torch(value):
        return value.float()
    if isinstance(value, np.ndarray) and value.dtype == np.uint16:
        return (value.astype(np.uint32) << 16).view(np.float32)
    return value.astype(np.float32, copy=False) if isinstance(value, np.ndarray) else value


def rounded(values: Any, kind: str) -> Any:
    """fp32 numbers to nearest even as bf16, f16 or f32; 16-bit codes in integers are bf16."""
    if is_torch(values):
        import torch

        return values.to({"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}[kind])
    if kind == "bf16":
        bits = values.view(np.uint32)
        return np.where(np.isnan(values), 0x7FC0, bits + 0x7FFF + (bits >> 16 & 1) >> 16).astype(np.uint16).view(numpy_dtype(kind))
    return values.astype({"f16": np.float16, "f32": np.float32}[kind])


def bare(value: Any) -> Any:
    return value.array if isinstance(value, Typed) else value


def like(value: Any, array: Any) -> Any:
    """`array` as codes of the type that `value` states, where it states one."""
    return as_dtype(array, value.dtype) if isinstance(value, Typed) else array


def type_of(value: Any) -> str:
    """Our name of an array's element type; 16-bit codes in integers are bf16. `?` of what has none."""
    if isinstance(value, Typed):
        return value.dtype
    kind = getattr(value, "dtype", None)
    try:
        return "bf16" if kind == np.uint16 else dtype_name(kind)
    except (BadType, TypeError):
        return "?"


def bytes_of_a_row(value: Any) -> int:
    value = bare(value)
    if not getattr(value, "ndim", 0):
        return 0
    return value.shape[-1] * (value.element_size() if is_torch(value) else value.dtype.itemsize)


def bytes_as(value: Any, name: str) -> Any:
    """The same memory as elements of an 8-bit type: int32 words that hold four block scales, or bytes."""
    if not is_torch(value):
        return as_dtype(value.view(np.uint8), name)
    import torch

    kind = getattr(torch, {"f8_e4m3": "float8_e4m3fn", "u8": "uint8"}[name], None)
    return as_dtype(value.view(torch.uint8), name) if kind is None else value.view(kind)


def not_writable(value: Any) -> str:
    """Why values cannot be stored in an array, where they cannot."""
    strides = value.stride() if is_torch(value) else getattr(value, "strides", ())
    if any(size > 1 and not stride for size, stride in zip(getattr(value, "shape", ()), strides)):
        return "has elements that are the same memory"
    if is_torch(value):
        return "requires grad" if value.requires_grad else ""
    return "" if getattr(getattr(value, "flags", None), "writeable", True) else "is read-only"


def rows_of_16_bytes(name: str) -> Callable[[Call], None]:
    """The kernels load 16 bytes at a time."""

    def check(call: Call) -> None:
        row = bytes_of_a_row(call["input"])
        if row % 16:
            raise refuse(name, f"has rows of {row} bytes, expected a multiple of 16 bytes", argument="input", code="bad_shape")

    return check


def one_row(*names: str) -> Callable[[Call], None]:
    """What has no dimension of rows is one row."""

    def hook(call: Call) -> None:
        for name in names:
            if getattr(bare(call[name]), "ndim", 0) == 1:
                call[name] = like(call[name], bare(call[name])[None])

    return hook


def last_stride(value: Any) -> int:
    return value.stride(-1) if is_torch(value) else value.strides[-1] // value.itemsize


def dense_copy(value: Any) -> Any:
    return dense(value.clone() if is_torch(value) else value.copy())


def dense(value: Any) -> Any:
    return value.contiguous() if is_torch(value) else np.ascontiguousarray(value)


def rows_of_a_mask(call: Call) -> None:
    """The numbers of the rows may be a list. What has no dimension of rows is one row."""
    one_row("logits", "bitmask")(call)
    if isinstance(call["indices"], list):
        call["indices"] = np.asarray(call["indices"], np.int32)


def as_it_lies(name: str) -> Callable[[Call], None]:
    """Upstream's kernel takes a pointer and a number of elements: of a slice it reads what lies behind its first element, gaps and all. Its own
    test calls it so, and compares with a kernel that does the same. What would lie outside of the slice's own span stays as it is, and is refused."""

    def hook(call: Call) -> None:
        value = call[name]
        if not is_torch(value) and not isinstance(value, np.ndarray):
            return
        unit = 1 if is_torch(value) else value.itemsize
        strides = value.stride() if is_torch(value) else value.strides
        span = sum((size - 1) * stride for size, stride in zip(value.shape, strides)) // unit + 1
        if min(strides, default=0) <= 0 or span < int(np.prod(value.shape)):
            return
        dense = [int(np.prod(value.shape[at + 1 :])) * unit for at in range(value.ndim)]
        call[name] = value.as_strided(value.shape, dense) if is_torch(value) else np.lib.stride_tricks.as_strided(value, value.shape, dense)

    return hook


def room_behind(**shapes: Callable[[tuple], tuple]) -> Callable[[Call], None]:
    """The kernels go by the input's sizes, and write to the beginning of outputs that hold more: callers pad rows. `shapes` of the input's shape."""

    def hook(call: Call) -> None:
        for name, shape_of in shapes.items():
            value, shape = bare(call[name]), shape_of(tuple(bare(call["input"]).shape))
            whole = getattr(value, "is_contiguous", None) or (lambda array=value: array.flags.c_contiguous)
            if int(np.prod(tuple(value.shape))) > int(np.prod(shape)) and whole():
                call[name] = like(call[name], value.reshape(-1)[: int(np.prod(shape))].reshape(shape))

    return hook


def stacked(parts: list) -> Any:
    if not is_torch(parts[0]):
        return np.stack(parts)
    import torch

    return torch.stack(parts)


def closed_up(value: Any) -> Any:
    """Without what lies between its rows: kernels take strides of pages and rows, whose elements must be neighbours."""
    array = bare(value)
    if not is_torch(array) and not isinstance(array, np.ndarray) or not array.ndim:
        return value
    unit = 1 if is_torch(array) else array.itemsize
    if (array.stride() if is_torch(array) else array.strides)[-1] != unit:
        return value
    return like(value, array.contiguous() if is_torch(array) else np.ascontiguousarray(array))


def as_list(run: Run, call: Call) -> Any:
    """The operator's Tensor[]."""
    return list(run(call))


def kind_of(pool: Any) -> str:
    pool = bare(pool)
    return f"{pool.dtype} {list(pool.shape)}" if hasattr(pool, "shape") else repr(pool)


def same_memory(run: Run, call: Call) -> Any:
    """A tensor of any type and rank over the same memory; what is no tensor comes back as it is."""
    value = call["tensor"]
    return value[...] if is_torch(value) or isinstance(value, np.ndarray) else value


def joined_rows(parts: tuple, inner: int) -> Any:
    """All dimensions but the last `inner` ones as one, of one request after another."""
    rows = [bare(part).reshape(-1, *bare(part).shape[-inner:]) for part in parts]
    if not is_torch(rows[0]):
        return np.concatenate(rows)
    import torch

    return torch.cat(rows)


def joined(parts: list, axis: int) -> Any:
    if not is_torch(parts[0]):
        return np.concatenate(parts, axis=axis)
    import torch

    return torch.cat(parts, dim=axis)


def with_zeros_behind(array: Any, columns: int) -> Any:
    """Rows that are longer by zeros."""
    shape = (*array.shape[:-1], columns)
    zeros = array.new_zeros(shape) if is_torch(array) else np.zeros(shape, array.dtype)
    return joined([array, zeros], -1)


def words_as_bytes(value: Any, name: str) -> Any:
    """Integers that hold codes, whatever their size; codes that say their type stay."""
    integers = value is not None and dtype_name(bare(value).dtype) in ("i32", "i64", "u8")
    return bytes_as(bare(value), name) if integers and not isinstance(value, Typed) else value
