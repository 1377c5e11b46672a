"""DeepGEMM's products with packed e2m1 or scales of 32 columns. Scales are powers of two: each number is widened to bf16, which holds it, and DeepGEMM's
product of bf16 does the rest."""

from __future__ import annotations

from typing import Any, Callable, Optional

import numpy as np

from ..._arrays import is_torch
from .._adapt import Call, NotOffered, refuse
from .arrays import Run, bare, dense, last_stride, type_of
from .deep_gemm import BLOCK, groups_by_row, pair, turned, words_of

Product = Callable[[], Callable[..., Any]]  # found when it is called


def _columns(call: Call) -> tuple:
    """Rows and columns that share a scale, of both sides, as far as the call says."""
    whole, sides = call.get("recipe"), (call.get("recipe_a"), call.get("recipe_b"))
    try:
        if isinstance(sides[0], (tuple, list)) and isinstance(sides[1], (tuple, list)) and whole is None:
            return tuple(sides[0]), tuple(sides[1])
        return ((whole[0], whole[2]), (whole[1], whole[2])) if whole is not None else (None, None)
    except (TypeError, IndexError):
        return None, None


def meant(call: Call) -> bool:
    """Whether a call has what the kernels of e4m3 under scales of 128 columns do not."""
    codes = [value[0] if isinstance(value, (tuple, list)) and value else None for value in (call["a"], call["b"])]
    return any(type_of(part) == "i8" for part in codes) or any(side is not None and side[-1] == 32 for side in _columns(call))


def _unpacked(name: str, argument: str, codes: Any, scales: Any) -> tuple[np.ndarray, str]:
    """[.., rows, K] codes. Packed ones hold two of K, or two rows where columns are neighbours."""
    from .._layouts import codes_of
    from .._mx import halves

    if type_of(codes) == "f8_e4m3":
        return codes_of(dense(bare(codes))), "f8_e4m3"
    if type_of(codes) != "i8":
        raise refuse(name, f"is {getattr(bare(codes), 'dtype', codes)}, expected float8_e4m3fn, or int8 of packed e2m1", argument=argument, code="bad_dtype")
    along_rows = last_stride(bare(codes)) != 1 and bare(codes).shape[-1] != 1
    lies = bare(turned(codes)) if along_rows else bare(codes)
    array = dense(lies)
    values = halves((array.numpy() if is_torch(array) else np.asarray(array)).view(np.uint8))
    return values.swapaxes(-1, -2) if along_rows else values, "e2m1"


def _exponents(name: str, argument: str, scales: Any, shape: tuple, sizes: Any) -> np.ndarray:
    """[.., rows, blocks] of powers of two, in words or fp32."""
    rows, columns = sizes if sizes is not None else (1, BLOCK)
    *lead, high, wide = shape
    if columns not in (32, BLOCK) or rows not in (1, 32, BLOCK):
        raise refuse(name, f"is {(rows, columns)}, offered are 32 or 128 columns", kind=NotOffered, code="unsupported", argument="recipe")
    blocks = -(-wide // columns)
    array = dense(bare(scales))
    array = array.numpy() if is_torch(array) else np.asarray(array)
    if words_of(scales):
        rows = 1  # each row has its own there
        given = (*array.shape[:-1], blocks) if array.shape[-1] == -(-blocks // 4) else array.shape
        codes = np.ascontiguousarray(array).view(np.uint8)[..., :blocks]
    else:
        given = array.shape
        if type_of(scales) != "f32":
            raise refuse(name, f"are {array.dtype}, expected float32 or int32", argument=f"scales of {argument}", code="bad_dtype")
        bits = np.ascontiguousarray(array).view(np.uint32)
        if (bits & 0x807FFFFF).any():
            raise refuse(name, "are no powers of two, offered with packed e2m1 or scales of 32 columns", kind=NotOffered, code="unsupported", argument=f"scales of {argument}")
        codes = (bits >> 23).astype(np.uint8)
    wanted = (*lead, -(-high // rows), blocks)
    if tuple(given) != wanted:
        raise refuse(name, f"has shape {list(array.shape)}, expected {list(wanted)}, or four in a word", argument=f"scales of {argument}", code="bad_shape")
    return np.repeat(codes, rows, axis=-2)[..., :high, :] if rows > 1 else codes


Rows = Callable[[str, Call, tuple], np.ndarray]  # which rows of a, of this shape, a call uses


def rows_of_groups(name: str, call: Call, shape: tuple) -> np.ndarray:
    """Those that have a group."""
    told = {key: call[key] for key in ("grouped_layout", "use_psum_layout")}
    return groups_by_row(name, told, shape[0], bare(pair(name, "b", call["b"])[0]).shape[0]) >= 0


def rows_that_count(name: str, call: Call, shape: tuple) -> np.ndarray:
    """The first of each group."""
    counts = np.asarray(bare(call["masked_m"])).reshape(-1, 1)
    return np.arange(shape[1]) < counts


def sides(name: str, call: Call, turn: str = "", used: Optional[Rows] = None) -> tuple[Any, Any]:
    """a and b in bf16, [.., rows, K]. What stands in rows of a that are not used may be anything."""
    from .._mx import as_bf16, widened

    made, recipes = [], _columns(call)
    for argument, sizes in zip("ab", recipes):
        codes, scales = pair(name, argument, call[argument])
        if argument in turn:
            codes, scales = turned(codes), turned(scales)
        values, kind = _unpacked(name, argument, codes, scales)
        sizes = sizes if sizes is not None else (1 if argument == "a" or words_of(scales) else BLOCK, BLOCK)
        if argument == "a" and used is not None and len(kept := used(name, call, values.shape)) == len(values):
            if not kept.all():
                values = np.where(kept[..., None], values, np.uint8(0))
                scales = _ones_where_not(scales, kept)
        exponents = _exponents(name, argument, scales, values.shape, sizes)
        flat = widened(name, argument, values.reshape(-1, values.shape[-1]), exponents.reshape(-1, exponents.shape[-1]), kind, sizes[1])
        made.append(as_bf16(flat.reshape(values.shape), bare(codes)))
    return made[0], made[1]


def _ones_where_not(scales: Any, kept: np.ndarray) -> Any:
    """Scales with 1 in rows that are not used: exponents of 127 in words."""
    array = bare(scales)
    array = array.numpy() if is_torch(array) else np.asarray(array)
    return np.where(kept[..., None], array, np.int32(0x7F7F7F7F) if array.dtype == np.int32 else np.float32(1))


OURS = ("mode", "threads", "gpu")


def or_by(around: Callable[[Run, Call], Any], name: str, product_of: Product, turn: str, *further: str, used: Optional[Rows] = None) -> Callable[[Run, Call], Any]:
    """`around`, or where it does not know such codes the product of bf16, with what else that takes."""

    def either(run: Run, call: Call) -> Any:
        if not meant(call):
            return around(run, call)
        a, b = sides(name, call, turn, used)
        given = {key: call[key] for key in (*further, *OURS) if call.get(key) is not None}
        product_of()(a, b, call["d"], **given)
        return None

    return either
