"""FlashInfer's attention over heads of keys, in the shapes that its wrappers take: pages, masks, positions and scales come to requests of the ragged
kernel. What a query does not see is left out; nothing is computed here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Optional

import numpy as np

from .._arrays import is_torch
from .._ops import function
from ._adapt import NotOffered, refuse
from ._compositions import _rotate, frequencies
from ._hooks.arrays import as_f32, bare, dense_copy, like, rounded, type_of
from ._hooks.checks import of_shape, of_type, shape_of, writable
from ._layouts import E4M3, as_given

SIXTEEN = ("bf16", "f16")
ROOM = 1 << 25  # elements of keys that are gathered for masks at a time


@dataclass(frozen=True)
class Sight:
    """What queries see, and how scores are made of it."""

    causal: bool = False
    window_left: int = -1
    cap: float = 0.0
    scale: Optional[float] = None  # of the scores; None: width^-0.5
    rotation: Optional[tuple[float, float]] = None  # divisor of angles and their base, where positions turn queries and keys
    masks: Optional[list] = None  # of each request, [queries, keys]; instead of causal


def integer(name: str, argument: str, value: Any, least: int) -> int:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)) or value < least:
        raise refuse(name, f"is {_told(value)}, expected a whole number of at least {least}", argument=argument)
    return int(value)


def _told(value: Any) -> str:
    return f"{bare(value).dtype} {list(bare(value).shape)}" if hasattr(bare(value), "shape") else repr(value)


def real(name: str, argument: str, value: Any) -> Optional[float]:
    """A finite number, or None."""
    if value is None:
        return None
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.integer, np.floating)) or not np.isfinite(value):
        raise refuse(name, f"is {_told(value)}, expected a finite number", argument=argument)
    return float(value)


def flag(name: str, argument: str, value: Any) -> bool:
    if value is not None and not isinstance(value, (bool, np.bool_, int, np.integer)):
        raise refuse(name, f"is {_told(value)}, expected True or False", argument=argument)
    return bool(value)


def sizes(name: str, page_size: Optional[int] = 1, **given: Any) -> None:
    """Of heads and their numbers, and tokens of a page."""
    for argument, value in given.items():
        if value is not None or argument != "head_dim_vo":
            integer(name, argument, value, 1)
    integer(name, "page_size", page_size, 1)
    if given["num_qo_heads"] % given["num_kv_heads"]:
        raise refuse(name, f"is {given['num_qo_heads']}, expected a multiple of num_kv_heads = {given['num_kv_heads']}", argument="num_qo_heads")


def sight_of(name: str, given: dict, masks: Optional[list] = None) -> Sight:
    """From the arguments that all of upstream's wrappers have."""
    mode = given.get("pos_encoding_mode", "NONE")
    if not isinstance(mode, str):
        raise refuse(name, f"is {_told(mode)}, expected NONE, ROPE_LLAMA or ALIBI", argument="pos_encoding_mode")
    if mode == "ALIBI":
        raise refuse(name, "is ALIBI, offered are NONE and ROPE_LLAMA", kind=NotOffered, code="unsupported", argument="pos_encoding_mode")
    if mode not in ("NONE", "ROPE_LLAMA"):
        raise refuse(name, f"is {mode!r}, expected NONE, ROPE_LLAMA or ALIBI", argument="pos_encoding_mode")
    cap, scale = (real(name, argument, given.get(argument)) for argument in ("logits_soft_cap", "sm_scale"))
    if cap is not None and cap < 0:
        raise refuse(name, f"is {cap!r}, expected at least 0", argument="logits_soft_cap")
    window = given.get("window_left")
    left = -1 if window is None else max(integer(name, "window_left", window, -(1 << 31)), -1)
    by = tuple(real(name, argument, given.get(argument)) for argument in ("rope_scale", "rope_theta"))
    turned = None if mode == "NONE" else (by[0] or 1.0, by[1] or 1e4)
    return Sight(flag(name, "causal", given.get("causal")), left, cap or 0.0, scale, turned, masks)


def number(name: str, argument: str, value: Any) -> float:
    """One number, from a number or an array of one."""
    if value is None:
        return 1.0
    array = bare(value)
    if isinstance(array, (int, float)) and not isinstance(array, bool):
        return float(array)
    if not hasattr(array, "shape") or int(np.prod(tuple(array.shape))) != 1:
        found = f"has shape {list(array.shape)}" if hasattr(array, "shape") else f"is {value!r}"
        raise refuse(name, f"{found}, expected one number", argument=argument, code="bad_shape")
    return float(array.reshape(-1)[0])


def whole_numbers(name: str, argument: str, value: Any, count: Optional[int] = None) -> np.ndarray:
    (size,) = shape_of(name, argument, value, 1)
    of_type(name, argument, value, "i32", "i64")
    if count is not None and size != count:
        raise refuse(name, f"has {size} elements, expected {count}", argument=argument, code="bad_shape")
    return np.asarray(bare(value)).astype(np.int64)


def offsets(name: str, argument: str, value: Any, count: Optional[int] = None) -> np.ndarray:
    ends = whole_numbers(name, argument, value, count)
    if len(ends) < 1 or ends[0] != 0 or (np.diff(ends) < 0).any():
        raise refuse(name, f"is {ends.tolist()}, expected to begin at 0 and not to fall", argument=argument)
    return ends


def kind_of(name: str, argument: str, value: Any, otherwise: str) -> str:
    """Our name of a type that a plan states."""
    if value is None:
        return otherwise
    text = value if isinstance(value, str) else str(value).rpartition(".")[2].rstrip("'>")
    known = {"float16": "f16", "half": "f16", "bfloat16": "bf16", "float8_e4m3fn": "f8_e4m3", "float8_e5m2": "f8_e5m2"}
    kind = known.get(text, text)
    if kind not in known.values():
        raise refuse(name, f"is {value!r}, expected float16, bfloat16 or a type of 8 bits", argument=argument, code="bad_dtype")
    return kind


def as_wide_as(rows: Any, q: Any) -> Any:
    """Codes of 8 bits as the numbers that they stand for, in the queries' type, which has them all but f16's denormals of e5m2."""
    kind = type_of(rows)
    if kind == type_of(q) or not kind.startswith("f8_"):
        return rows
    if is_torch(bare(rows)):
        return bare(rows).to(bare(q).dtype)
    if kind != "f8_e4m3":
        raise refuse("attention", f"is {kind}, offered is f8_e4m3, of torch f8_e5m2 too", kind=NotOffered, code="unsupported", argument="paged_kv_cache")
    return rounded(E4M3[bare(rows).view(np.uint8)], type_of(q))


def _turned(name: str, rows: Any, positions: np.ndarray, rotation: tuple[float, float]) -> Any:
    """The halves of each head by the angles of its position, rounded to its type."""
    copy = dense_copy(bare(rows))
    beside = dense_copy(copy[:, :1])
    _rotate(name, copy, beside, positions, None, False, lambda width: frequencies(width, *rotation))
    return copy


def positions_of(ends: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Of rows one request after another, each request from its start on."""
    lengths = np.diff(ends)
    return np.repeat(starts - ends[:-1], lengths) + np.arange(ends[-1])


def attend(name: str, q: Any, k: Any, v: Any, q_ends: np.ndarray, k_ends: np.ndarray, sight: Sight, scales: tuple = (1.0, 1.0), sinks: Any = None, how: dict = {}) -> tuple:
    """out [T, N, Dv] and base-2 logarithms [T, N]. `scales` are factors of the scores and of the output."""
    width = shape_of(name, "q", q, 3)[2]
    of_type(name, "q", q, *SIXTEEN)
    k, v = as_wide_as(k, q), as_wide_as(v, q)
    if sight.rotation is not None:
        lengths = np.diff(k_ends)
        q = _turned(name, q, positions_of(q_ends, lengths - np.diff(q_ends)), sight.rotation)
        k = _turned(name, like(k, bare(k)[: k_ends[-1]]), positions_of(k_ends, np.zeros(len(lengths), np.int64)), sight.rotation)
    scale = (width**-0.5 if sight.scale is None else sight.scale) * scales[0]
    more = {"window_left": sight.window_left, "logits_soft_cap": sight.cap, "sm_scale": scale, "return_lse": True, **how}
    if sinks is not None:
        more["sinks"] = sinks
    causal, masks = sight.causal, sight.masks
    if masks is not None and (plain := _one_for_all(masks)) is not None:
        causal, masks = plain, None
    if masks is None:
        out, lse = _run(q, k, v, q_ends, k_ends, {**more, "causal": causal})
    else:
        out, lse = _masked(q, k, v, q_ends, k_ends, masks, more)
    if scales[1] != 1.0:
        wide = as_f32(bare(out))
        out = rounded(wide * (scales[1] if is_torch(wide) else np.float32(scales[1])), type_of(q))
    return out, lse


def _run(q: Any, k: Any, v: Any, q_ends: np.ndarray, k_ends: np.ndarray, how: dict) -> tuple:
    bounds = {"qo_indptr": q_ends, "kv_indptr": k_ends}
    given = {argument: as_given(ends.astype(np.int32), bare(q)) for argument, ends in bounds.items()}
    if len(q_ends) < 2 or bare(q).shape[0] == 0 or bare(k).shape[0] == 0:  # no request, or nothing to see
        return _nothing(q, v)
    return function("batch_prefill_with_ragged_kv_cache")(q=q, k=k, v=v, **given, **how)


def _nothing(q: Any, v: Any) -> tuple:
    shape = (*bare(q).shape[:2], bare(v).shape[2])
    if is_torch(bare(q)):
        return bare(q).new_zeros(shape), bare(q).new_full(shape[:2], -np.inf).float()
    return np.zeros(shape, bare(q).dtype), np.full(shape[:2], -np.inf, np.float32)


def _one_for_all(masks: list) -> Optional[bool]:
    """Whether masks hide nothing (False), or what causal ones hide (True); None where they are others."""
    if all(mask.all() for mask in masks):
        return False
    below = (np.tri(*mask.shape, mask.shape[1] - mask.shape[0], dtype=bool) for mask in masks)
    return True if all(np.array_equal(mask, other) for mask, other in zip(masks, below)) else None


def _masked(q: Any, k: Any, v: Any, q_ends: np.ndarray, k_ends: np.ndarray, masks: list, how: dict) -> tuple:
    """Each query is a request of the keys that it sees."""
    seen, window = [], how["window_left"]
    for mask, first in zip(masks, k_ends):
        queries, keys = mask.shape
        if window >= 0:
            mask = mask & (np.arange(keys) >= np.arange(queries)[:, None] + keys - queries - window)
        seen += [first + np.flatnonzero(row) for row in mask]
    how = {**how, "window_left": -1, "causal": False}
    out, lse = _nothing(q, v)
    most, begin = max(ROOM // max(int(np.prod(bare(k).shape[1:])), 1), 1), 0
    while begin < len(seen):
        end, count = begin + 1, len(seen[begin])
        while end < len(seen) and count + len(seen[end]) <= most:
            count, end = count + len(seen[end]), end + 1
        if count:
            at = as_given(np.concatenate(seen[begin:end]), bare(k))
            bounds = np.concatenate([[0], np.cumsum([len(part) for part in seen[begin:end]])])
            parts = (like(rows, bare(rows)[at]) for rows in (k, v))
            made, sums = _run(like(q, bare(q)[begin:end]), *parts, np.arange(end - begin + 1), bounds, how)
            out[begin:end], lse[begin:end] = bare(made) if is_torch(out) else bare(made).view(out.dtype), bare(sums)
        begin = end
    return like(q, out), lse


# ---- masks ----


def masks_of(name: str, custom: Any, packed: Any, q_ends: np.ndarray, k_ends: np.ndarray) -> Optional[list]:
    """One request's mask after another, flat: truth values, or bits from the bottom of bytes, each request in bytes of its own."""
    sizes = list(zip(np.diff(q_ends).tolist(), np.diff(k_ends).tolist()))
    counts = np.array([rows * columns for rows, columns in sizes], np.int64)
    if packed is not None:
        shape_of(name, "packed_custom_mask", packed, 1)
        of_type(name, "packed_custom_mask", packed, "u8")
        if bare(packed).shape[0] < (-(-counts // 8)).sum():
            raise refuse(name, f"has {bare(packed).shape[0]} bytes, expected {(-(-counts // 8)).sum()}", argument="packed_custom_mask", code="bad_shape")
        ends = np.concatenate([[0], np.cumsum(-(-counts // 8))])
        every = np.asarray(bare(packed))
        parts = [np.unpackbits(every[a:b], bitorder="little")[:count] for a, b, count in zip(ends, ends[1:], counts)]
    elif custom is not None:
        of_type(name, "custom_mask", custom, "bool", "u8", "i32")
        every = np.asarray(bare(custom)).reshape(-1)
        if len(every) != counts.sum():
            raise refuse(name, f"has {len(every)} elements, expected {counts.sum()}: queries by keys of each request", argument="custom_mask", code="bad_shape")
        parts = np.split(every, np.cumsum(counts)[:-1]) if len(counts) else []
    else:
        return None
    return [part.astype(bool).reshape(size) for part, size in zip(parts, sizes)]


# ---- pages ----


def halves(name: str, cache: Any, heads_first: bool) -> tuple[Any, Any]:
    """Keys and values [pages, tokens, heads, width] of a pair, or of one array [pages, 2, ...]."""
    if isinstance(cache, (tuple, list)):
        if len(cache) != 2:
            raise refuse(name, f"has {len(cache)} members, expected keys and values", argument="paged_kv_cache")
        pair = tuple(cache)
    else:
        shape = shape_of(name, "paged_kv_cache", cache, 5)
        if shape[1] != 2:
            raise refuse(name, f"has shape {list(shape)}, expected [pages, 2, ...] or a pair", argument="paged_kv_cache", code="bad_shape")
        pair = (like(cache, bare(cache)[:, 0]), like(cache, bare(cache)[:, 1]))
    for part in pair:
        shape_of(name, "paged_kv_cache", part, 4)
    return tuple(like(part, bare(part).swapaxes(1, 2)) for part in pair) if heads_first else pair  # type: ignore[return-value]


def rows_of_pages(name: str, cache: Any, tables: list, lengths: np.ndarray, argument: str = "paged_kv_indices") -> Any:
    """Tokens [n, heads, width] of requests one behind the other."""
    array = bare(cache)
    pages, size = array.shape[:2]
    for table, length in zip(tables, lengths):
        used = table[: -(-length // size)]
        if len(used) and not 0 <= used.min() <= used.max() < pages:
            raise refuse(name, f"holds {used.min() if used.min() < 0 else used.max()}, expected 0 to {pages - 1}", argument=argument)
    places = [np.arange(length) for length in lengths]
    page = np.concatenate([table[at // size] for table, at in zip(tables, places)] or [np.zeros(0, np.int64)]).astype(np.int64)
    place = np.concatenate([at % size for at in places] or [np.zeros(0, np.int64)]).astype(np.int64)
    if is_torch(array):
        import torch

        raw = array.view(torch.uint8) if array.element_size() == 1 else array
        return like(cache, raw[torch.from_numpy(page), torch.from_numpy(place)].view(array.dtype))
    return like(cache, array[page, place])


def tables_of(name: str, indptr: Any, indices: Any, last: Any, page_size: int) -> tuple[list, np.ndarray]:
    """Pages of each request, and its tokens."""
    ends = offsets(name, "paged_kv_indptr", indptr)
    of, filled = whole_numbers(name, "paged_kv_indices", indices), whole_numbers(name, "paged_kv_last_page_len", last, len(ends) - 1)
    counts = np.diff(ends)
    if ends[-1] > len(of):
        raise refuse(name, f"ends at {ends[-1]}, where paged_kv_indices has {len(of)}", argument="paged_kv_indptr")
    wrong = (filled > page_size) | (filled < np.where(counts, 1, 0))
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        raise refuse(name, f"holds {filled[at]} at element {at}, expected 1 to {page_size}", argument="paged_kv_last_page_len")
    return [of[a:b] for a, b in zip(ends, ends[1:])], np.where(counts, (counts - 1) * page_size + filled, 0)


def given_back(name: str, made: tuple, out: Any, lse: Any, return_lse: bool) -> Any:
    """To the caller's arrays where there are any."""
    values, sums = made
    if out is not None:
        bare(out)[...] = bare(values) if is_torch(bare(out)) else bare(values).view(bare(out).dtype)
        values = out
    if lse is not None:
        bare(lse)[...] = bare(sums)
        sums = lse
    return (values, sums) if return_lse else values


def rooms(name: str, q: Any, width: int, out: Any, lse: Any) -> None:
    """Before anything is computed."""
    shape = (*bare(q).shape[:2], width)
    for argument, value, wanted, kinds in (("out", out, shape, (type_of(q),)), ("lse", lse, shape[:2], ("f32",))):
        if value is not None:
            of_shape(name, argument, value, wanted)
            of_type(name, argument, value, *kinds)
            writable(name, argument, value)

