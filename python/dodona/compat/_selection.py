"""FlashInfer's selection of the largest scores of rows, and what sparse attention makes of their places. Of equal scores at the boundary the first ones
are taken, or the last where the caller says so; places come in rising order."""

from __future__ import annotations

from typing import Any, Optional

import numpy as np

from .._arrays import is_torch
from ._adapt import named, refuse
from ._hooks.arrays import as_f32, bare, like
from ._hooks.checks import of_shape, of_type, shape_of, writable
from ._layouts import as_given
from ._upstream import value_of

NONE, LARGE = value_of("TopKTieBreak.NONE"), 2  # of TopKTieBreak: later places first


def _later_first(name: str, tie_break: Any) -> bool:
    number = getattr(tie_break, "value", tie_break)
    known = {"TopKTieBreak.NONE": 0, "TopKTieBreak.SMALL": 1, "TopKTieBreak.LARGE": 2}
    number = known.get(repr(number), number)
    if number not in (0, 1, 2):
        raise refuse(name, f"is {tie_break!r}, expected 0, 1 or 2", argument="tie_break")
    return number == LARGE


def _scores(name: str, argument: str, value: Any) -> np.ndarray:
    """fp32 rows; NaN is above all numbers."""
    shape_of(name, argument, value, 2)
    of_type(name, argument, value, "f32", "f16", "bf16")
    wide = as_f32(bare(value))
    rows = np.asarray(wide.detach() if is_torch(wide) else wide, np.float32)
    return np.where(np.isnan(rows), np.inf, rows)


def _count(name: str, k: Any) -> int:
    if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or k < 1:
        raise refuse(name, f"is {k!r}, expected at least 1", argument="k")
    return int(k)


def largest(row: np.ndarray, k: int, later_first: bool) -> np.ndarray:
    """Places of the k largest, rising; all of a shorter row's."""
    if len(row) <= k:
        return np.arange(len(row))
    bound = np.partition(row, len(row) - k)[len(row) - k]
    above, equal = np.flatnonzero(row > bound), np.flatnonzero(row == bound)
    missing = k - len(above)
    return np.sort(np.concatenate([above, equal[len(equal) - missing :] if later_first else equal[:missing]]))


def _numbers(name: str, argument: str, value: Any, count: int) -> np.ndarray:
    of_shape(name, argument, value, (count,))
    of_type(name, argument, value, "i32", "i64")
    return np.asarray(bare(value)).astype(np.int64)


@named("top_k")
def top_k(input: Any, k: int, sorted: bool = False, deterministic: bool = False, tie_break: Any = NONE, dsa_graph_safe: bool = False) -> tuple[Any, Any]:
    """The k largest of each row, and their places; by falling value where `sorted` asks for it."""
    name = "top_k"
    rows, later, k = _scores(name, "input", input), _later_first(name, tie_break), _count(name, k)
    if k > rows.shape[1]:
        raise refuse(name, f"is {k}, expected at most the {rows.shape[1]} of a row", argument="k")
    places = np.array([largest(row, k, later) for row in rows], np.int64).reshape(len(rows), k)
    if sorted:
        order = np.argsort(-np.take_along_axis(rows, places, 1), axis=1, kind="stable")
        places = np.take_along_axis(places, order, 1)
    array = bare(input)
    values = array.gather(1, as_given(places, array)) if is_torch(array) else np.take_along_axis(array, places, 1)
    return like(input, values), as_given(places, array)


def _places(name: str, input: Any, lengths: Any, k: int, tie_break: Any, row_starts: Any) -> tuple[list, np.ndarray]:
    """Of each row's part, relative to its start, and the starts."""
    rows, later = _scores(name, "input", input), _later_first(name, tie_break)
    counts = _numbers(name, "lengths", lengths, len(rows))
    starts = np.zeros(len(rows), np.int64) if row_starts is None else _numbers(name, "row_starts", row_starts, len(rows))
    for i, (start, count) in enumerate(zip(starts, counts)):
        if start < 0 or count < 0 or start + count > rows.shape[1]:
            argument = "lengths" if row_starts is None else "row_starts"
            raise refuse(name, f"asks for {count} scores from {start} on in row {i}, which has {rows.shape[1]}", argument=argument)
    return [largest(row[start : start + count], _count(name, k), later) for row, start, count in zip(rows, starts, counts)], starts


def _room(name: str, argument: str, value: Any, shape: tuple) -> None:
    if value is not None:
        of_shape(name, argument, value, shape)
        of_type(name, argument, value, "i32")
        writable(name, argument, value)


def _filled(parts: list, k: int, model: Any, out: Any) -> Any:
    """Rows of k places, -1 behind them."""
    made = np.full((len(parts), k), -1, np.int32)
    for row, part in zip(made, parts):
        row[: len(part)] = part
    if out is None:
        return as_given(made, bare(model))
    bare(out)[...] = as_given(made, bare(out))
    return out


@named("top_k_page_table_transform")
def top_k_page_table_transform(
    input: Any, src_page_table: Any, lengths: Any, k: int, row_to_batch: Optional[Any] = None, deterministic: bool = False, tie_break: Any = NONE,
    dsa_graph_safe: bool = False, row_starts: Optional[Any] = None, page_table_row_starts: Optional[Any] = None, *, page_size: int = 1,
    out: Optional[Any] = None, out_raw_indices: Optional[Any] = None,
) -> Any:  # fmt: skip
    """The slots of the tokens with the largest scores, by each request's table of pages."""
    name = "top_k_page_table_transform"
    if not isinstance(page_size, int) or not 0 < page_size <= 1 << 30 or page_size & page_size - 1:
        raise refuse(name, f"is {page_size!r}, expected a power of two up to 2^30", argument="page_size")
    if page_size != 1 and row_starts is not None and page_table_row_starts is None:
        raise refuse(name, "is missing, expected with page_size above 1 and row_starts", argument="page_table_row_starts", code="missing_argument")
    parts, starts = _places(name, input, lengths, k, tie_break, row_starts)
    requests, width = shape_of(name, "src_page_table", src_page_table, 2)
    of_type(name, "src_page_table", src_page_table, "i32")
    of = np.arange(len(parts)) if row_to_batch is None else _numbers(name, "row_to_batch", row_to_batch, len(parts))
    if len(of) and not 0 <= of.min() <= of.max() < requests:
        argument = "src_page_table" if row_to_batch is None else "row_to_batch"
        raise refuse(name, f"names request {of.min() if of.min() < 0 else of.max()} of {requests}", argument=argument)
    first = np.zeros(len(parts), np.int64) if page_table_row_starts is None else _numbers(name, "page_table_row_starts", page_table_row_starts, len(parts))
    if page_table_row_starts is None and row_starts is not None:
        first = starts
    for argument, value in (("out", out), ("out_raw_indices", out_raw_indices)):
        _room(name, argument, value, (len(parts), k))
    table, slots = np.asarray(bare(src_page_table)).astype(np.int64), []
    for i, part in enumerate(parts):
        at = first[i] + part // page_size
        if len(at) and not 0 <= at.min() <= at.max() < width:
            raise refuse(name, f"has {width} pages in a row, expected one at {at.max()} for row {i}", argument="src_page_table", code="bad_shape")
        slots.append(table[of[i], at] * page_size + part % page_size)
    if out_raw_indices is not None:
        _filled(parts, k, input, out_raw_indices)
    return _filled(slots, k, input, out)


@named("top_k_ragged_transform")
def top_k_ragged_transform(
    input: Any, offsets: Any, lengths: Any, k: int, deterministic: bool = False, tie_break: Any = NONE, dsa_graph_safe: bool = False,
    row_starts: Optional[Any] = None,
) -> Any:  # fmt: skip
    """Places of the largest scores, from each row's offset on."""
    name = "top_k_ragged_transform"
    parts, _ = _places(name, input, lengths, k, tie_break, row_starts)
    begins = _numbers(name, "offsets", offsets, len(parts))
    return _filled([part + begin for part, begin in zip(parts, begins)], k, input, None)


_whole_rows = top_k  # under a name that no parameter has


@named("topk_clusters_exact")
def topk_clusters_exact(logits: Any, top_k: int, output_values: bool = False, out_dtype: Any = value_of("torch.int32"), pdl: bool = False) -> tuple[Any, Any]:
    """Places, and values where they are asked for."""
    values, places = _whole_rows(logits, top_k)
    kind = np.int64 if "int64" in str(out_dtype) else np.int32
    return as_given(np.asarray(places).astype(kind), bare(logits)), values if output_values else None


@named("topk_clusters_page_table_transform")
def topk_clusters_page_table_transform(logits: Any, seq_lens: Any, src_page_table: Any, top_k: int, pdl: bool = False) -> Any:
    """top_k_page_table_transform."""
    return top_k_page_table_transform(logits, src_page_table, seq_lens, top_k)


@named("topk_clusters_ragged_transform")
def topk_clusters_ragged_transform(logits: Any, seq_lens: Any, offsets: Any, top_k: int, pdl: bool = False) -> Any:
    """top_k_ragged_transform."""
    return top_k_ragged_transform(logits, offsets, seq_lens, top_k)


def can_implement_filtered_topk() -> bool:
    """Whatever the way, the result is the same."""
    return True


# What is here, by the module in which upstream has it.
PLACES = {
    "flashinfer.topk": (
        can_implement_filtered_topk, top_k, top_k_page_table_transform, top_k_ragged_transform, topk_clusters_exact, topk_clusters_page_table_transform,
        topk_clusters_ragged_transform,
    )  # fmt: skip
}
