"""The largest numbers of a range of each row, as the indexer of sparse attention asks for them: vLLM's top_k_per_row and TensorRT-LLM's indexer_topk, on tensors."""

from __future__ import annotations

from typing import Any

from ._adapt import refuse
from ._hooks.checks import of_shape, of_type, shape_of, writable


def _checked(name: str, logits: Any, indices: Any, topk: int) -> int:
    rows, _ = shape_of(name, "logits", logits, 2)
    of_type(name, "logits", logits, "f32")
    of_type(name, "indices", indices, "i32")
    room, width = shape_of(name, "indices", indices, 2)
    if room != rows or topk < 1 or width < topk:
        raise refuse(name, f"has shape {[room, width]}, expected {rows} rows of {topk} at least", argument="indices", code="bad_shape")
    if not indices.is_contiguous():
        raise refuse(name, "is not contiguous", argument="indices", code="bad_layout")
    writable(name, "indices", indices)
    return rows


def _find(name: str, logits: Any, begins: Any, ends: Any, indices: Any, topk: int) -> None:
    """Places from a range's beginning on. A range of no more than topk has all of its places, in order, and -1 behind; of longer ones the largest come first, of equal ones the
    first first. Upstream's order is not said."""
    import torch

    lengths = (ends - begins).clamp_min(0)
    columns = logits.shape[1]
    if len(lengths) and (int(begins.min()) < 0 or int((begins + lengths).max()) > columns):
        raise refuse(name, f"holds ranges from {int(begins.min())} to {int((begins + lengths).max())}, expected some of {columns} columns", argument="logits")
    places = torch.arange(topk, dtype=torch.int32).expand(len(lengths), topk)
    made = torch.where(places < lengths[:, None], places, -1).to(torch.int32)
    for row in torch.nonzero(lengths > topk).flatten().tolist():
        part = logits[row, int(begins[row]) : int(begins[row] + lengths[row])]
        made[row] = torch.sort(part, descending=True, stable=True).indices[:topk]
    indices.view(-1)[: made.numel()] = made.reshape(-1)  # kernels write rows of topk one after another


def of_ranges(name: str, logits: Any, row_starts: Any, row_ends: Any, indices: Any, topk: int) -> None:
    rows = _checked(name, logits, indices, topk)
    for argument, value in (("row_starts", row_starts), ("row_ends", row_ends)):
        of_type(name, argument, value, "i32")
        of_shape(name, argument, value, (rows,))
    _find(name, logits, row_starts.long(), row_ends.long(), indices, topk)


def of_lengths(name: str, logits: Any, seq_lens: Any, indices: Any, next_n: int, topk: int) -> None:
    """next_n rows of each request, the i-th of which sees seq_len - next_n + i + 1; or lengths of each row, [requests, next_n]."""
    import torch

    rows = _checked(name, logits, indices, topk)
    of_type(name, "seq_lens", seq_lens, "i32")
    if next_n < 1:
        raise refuse(name, f"is {next_n}, expected 1 at least", argument="next_n")
    if len(shape_of(name, "seq_lens", seq_lens, 1, 2)) == 2 or (seq_lens.numel() == rows and next_n == 1):
        ends = seq_lens.reshape(-1).long()
    else:
        ends = (seq_lens.long()[:, None] - next_n + 1 + torch.arange(next_n)).reshape(-1)
    if len(ends) != rows:
        raise refuse(name, f"has shape {list(seq_lens.shape)} with next_n={next_n}, expected lengths of {rows} rows", argument="seq_lens", code="bad_shape")
    _find(name, logits, torch.zeros_like(ends), ends, indices, topk)
