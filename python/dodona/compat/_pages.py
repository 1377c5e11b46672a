"""FlashInfer's caches in pages: where tokens stand, and what is stored there."""

from __future__ import annotations

from typing import Any, Optional

import numpy as np

from .._arrays import is_torch
from ._adapt import refuse
from ._hooks.arrays import bare, not_writable, type_of
from ._layouts import as_given


def _numbers(name: str, argument: str, value: Any) -> np.ndarray:
    array = bare(value)
    if not hasattr(array, "shape") or len(array.shape) != 1 or type_of(array) not in ("i32", "i64"):
        found = f"is {array.dtype} {list(array.shape)}" if hasattr(array, "shape") else f"is {array!r}"
        raise refuse(name, f"{found}, expected int32 of one dimension", argument=argument, code="bad_dtype")
    return np.asarray(array).astype(np.int64)


def get_seq_lens(kv_indptr: Any, kv_last_page_len: Any, page_size: int) -> Any:
    """Tokens of each request: whole pages, and those of its last one."""
    name = "get_seq_lens"
    pages, last = np.diff(_numbers(name, "kv_indptr", kv_indptr)), _numbers(name, "kv_last_page_len", kv_last_page_len)
    if len(pages) != len(last):
        raise refuse(name, f"has {len(last)} lengths, expected {len(pages)}", argument="kv_last_page_len", code="bad_shape")
    return as_given((np.maximum(pages - 1, 0) * int(page_size) + last).astype(np.int32), bare(kv_indptr))


def get_batch_indices_positions(
    append_indptr: Any, seq_lens: Any, nnz: int, batch_indices: Any = None, positions: Any = None
) -> tuple[Any, Any]:
    """Of tokens that are appended, one request after another: the request, and the place in it, so that the last one is the request's last.
    -1 and 0 behind them, where there is room for more. Written to what the caller gives, where it does."""
    name = "get_batch_indices_positions"
    begins, lengths = _numbers(name, "append_indptr", append_indptr), _numbers(name, "seq_lens", seq_lens)
    counts = np.diff(begins)
    if len(counts) != len(lengths) or (counts < 0).any() or begins[0] != 0 or begins[-1] > nnz:
        text = f"is {begins.tolist()} with {len(lengths)} lengths, expected to rise from 0 to at most {nnz}, one step a length"
        raise refuse(name, text, argument="append_indptr")
    given = {"batch_indices": batch_indices, "positions": positions}
    requests, places = np.full(int(nnz), -1, np.int32), np.zeros(int(nnz), np.int32)
    rows = np.repeat(np.arange(len(counts)), counts)
    requests[: len(rows)] = rows
    places[: len(rows)] = (lengths - counts - begins[:-1])[rows] + np.arange(len(rows))
    made = []
    for argument, values in (("batch_indices", requests), ("positions", places)):
        target = bare(given[argument])
        if target is None:
            made.append(as_given(values, bare(append_indptr)))
            continue
        if tuple(getattr(target, "shape", ())) != (int(nnz),) or type_of(target) != "i32" or not_writable(target):
            found = f"is {target.dtype} {list(target.shape)}" if hasattr(target, "shape") else f"is {target!r}"
            raise refuse(name, f"{found}, expected int32 [{nnz}] that can be written", argument=argument, code="bad_dtype")
        target[...] = as_given(values, target)
        made.append(target)
    return made[0], made[1]


def _slots(name: str, batch_indices: Any, positions: Any, kv_indices: Any, kv_indptr: Any, page: int, pages: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Which tokens are stored (those of request -1 are not), in which page, at which place of it."""
    requests, places = _numbers(name, "batch_indices", batch_indices), _numbers(name, "positions", positions)
    table, begins = _numbers(name, "kv_indices", kv_indices), _numbers(name, "kv_indptr", kv_indptr)
    if len(requests) != len(places):
        raise refuse(name, f"has {len(places)} elements, expected {len(requests)}", argument="positions", code="bad_shape")
    tokens = np.flatnonzero(requests >= 0)
    requests, places = requests[tokens], places[tokens]
    if len(tokens) and (requests.max() >= len(begins) - 1 or places.min() < 0):
        raise refuse(name, f"names request {requests.max()} and position {places.min()}, expected requests below {len(begins) - 1}", argument="batch_indices")
    entry = begins[requests] + places // page
    if (entry >= begins[requests + 1]).any() or (entry >= len(table)).any():
        raise refuse(name, "names a token behind its request's pages", argument="positions")
    found = table[entry]
    if len(found) and not 0 <= found.min() <= found.max() < pages:
        raise refuse(name, f"names page {found.min() if found.min() < 0 else found.max()} of {pages}", argument="kv_indices")
    return tokens, found, places % page


def _stored(name: str, argument: str, cache: Any, values: Any, slots: tuple, heads_first: bool = False) -> None:
    """Rows of `values` at their places; heads_first: pages are [heads, tokens, width]."""
    tokens, pages, places = slots
    target, given = bare(cache), bare(values)
    view = target
    if heads_first:
        view = target.transpose(1, 2) if is_torch(target) else target.swapaxes(1, 2)
    if tuple(view.shape[2:]) != tuple(given.shape[1:]) or type_of(cache) != type_of(values):
        text = f"is {target.dtype} {list(target.shape)}, which does not hold {given.dtype} {list(given.shape)}"
        raise refuse(name, text, argument=argument, code="bad_shape")
    if reason := not_writable(target):
        raise refuse(name, f"{reason}, and is written", argument=argument)
    if is_torch(target):
        import torch

        raw = (lambda x: x.view(torch.uint8)) if target.element_size() == 1 else (lambda x: x)
        raw(view)[torch.from_numpy(pages), torch.from_numpy(places)] = raw(given.contiguous())[torch.from_numpy(tokens)]
    else:
        view[pages, places] = given[tokens]


def _page_of(name: str, argument: str, cache: Any, rank: int, axis: int = 1) -> tuple[int, int]:
    shape = getattr(bare(cache), "shape", None)
    if shape is None or len(shape) != rank:
        found = f"is {cache!r}" if shape is None else f"has shape {list(shape)}"
        raise refuse(name, f"{found}, expected {rank} dimensions", argument=argument, code="bad_shape")
    return shape[axis], shape[0]


def append_paged_mla_kv_cache(
    append_ckv: Any, append_kpe: Any, batch_indices: Any, positions: Any, ckv_cache: Any, kpe_cache: Any, kv_indices: Any, kv_indptr: Any,
    kv_last_page_len: Any,
) -> None:  # fmt: skip
    """Latents and rotated parts, each at its token's place in the pages of its request."""
    name = "append_paged_mla_kv_cache"
    slots = _slots(name, batch_indices, positions, kv_indices, kv_indptr, *_page_of(name, "ckv_cache", ckv_cache, 3))
    _page_of(name, "kpe_cache", kpe_cache, 3)
    for argument, cache, values in (("ckv_cache", ckv_cache, append_ckv), ("kpe_cache", kpe_cache, append_kpe)):
        _stored(name, argument, cache, values, slots)


def _halves(name: str, cache: Any, argument: str = "paged_kv_cache") -> tuple[Any, Any]:
    """Keys and values of a pair, or of one array [pages, 2, ...]."""
    if isinstance(cache, (tuple, list)):
        if len(cache) != 2:
            raise refuse(name, f"has {len(cache)} members, expected keys and values", argument=argument)
        return cache[0], cache[1]
    shape = getattr(bare(cache), "shape", ())
    if len(shape) != 5 or shape[1] != 2:
        raise refuse(name, f"has shape {list(shape)}, expected [pages, 2, ...] or a pair", argument=argument, code="bad_shape")
    return bare(cache)[:, 0], bare(cache)[:, 1]


def _heads_first(name: str, kv_layout: Any) -> bool:
    if kv_layout not in ("NHD", "HND"):
        raise refuse(name, f"is {kv_layout!r}, expected NHD or HND", argument="kv_layout")
    return kv_layout == "HND"


def append_paged_kv_cache(
    append_key: Any, append_value: Any, batch_indices: Any, positions: Any, paged_kv_cache: Any, kv_indices: Any, kv_indptr: Any, kv_last_page_len: Any,
    kv_layout: str = "NHD",
) -> None:  # fmt: skip
    """Keys and values, each at its token's place in the pages of its request."""
    name = "append_paged_kv_cache"
    heads_first, (keys, values) = _heads_first(name, kv_layout), _halves(name, paged_kv_cache)
    page = _page_of(name, "paged_kv_cache", keys, 4, 2 if heads_first else 1)
    _page_of(name, "paged_kv_cache", values, 4)
    slots = _slots(name, batch_indices, positions, kv_indices, kv_indptr, *page)
    for cache, given in ((keys, append_key), (values, append_value)):
        _stored(name, "paged_kv_cache", cache, given, slots, heads_first)


def rope_into_pages(quantize: Any) -> Any:
    def rope_quantize_fp8_append_paged_kv_cache(
        q_rope: Any, k_rope: Any, q_nope: Any, k_nope: Any, v: Any, cos_sin_cache: Any, pos_ids: Any, paged_kv_cache: Any, kv_indices: Any, kv_indptr: Any,
        batch_indices: Any, positions: Any, is_neox: bool = True, quantize_dtype: Any = None, quant_scale_q: float = 1.0, quant_scale_kv: float = 1.0,
        page_size: int = 16, kv_layout: str = "NHD", q_rope_out: Optional[Any] = None, q_nope_out: Optional[Any] = None, enable_pdl: bool = False,
    ) -> tuple[Any, Any]:  # fmt: skip
        """rope_quantize_fp8, whose keys go to pages, and of keys with heads the values too, quantized by the keys' scale."""
        name = "rope_quantize_fp8_append_paged_kv_cache"
        for argument, value in (("q_rope", q_rope), ("k_rope", k_rope)):
            if not hasattr(bare(value), "shape"):
                raise refuse(name, f"is {value!r}, expected an array", argument=argument, code="bad_dtype")
        latent, caches = bare(k_rope).ndim == 2, _halves(name, paged_kv_cache)
        heads_first = not latent and _heads_first(name, kv_layout)
        page = _page_of(name, "paged_kv_cache", caches[0], 3 if latent else 4, 2 if heads_first else 1)
        if page[0] != page_size:
            raise refuse(name, f"is {page_size}, where pages hold {page[0]} tokens", argument="page_size")
        slots = _slots(name, batch_indices, positions, kv_indices, kv_indptr, *page)
        empty = lambda model: bare(model)[..., :0]
        q_nope, k_nope = empty(q_rope) if q_nope is None else q_nope, empty(k_rope) if k_nope is None else k_nope
        call = (cos_sin_cache, pos_ids, is_neox, quantize_dtype if quantize_dtype is not None else bare(caches[0]).dtype, quant_scale_q, quant_scale_kv)
        made = quantize()(q_rope, k_rope, q_nope, k_nope, *call, q_rope_out=q_rope_out, q_nope_out=q_nope_out)
        q_out, k_out, q_rest, k_rest = (bare(part) for part in made)
        if latent:
            stored = ((caches[0], k_rest), (caches[1], k_out))
        else:
            if v is None:
                raise refuse(name, "is None, expected with keys that have heads", argument="v", code="missing_argument")
            values = bare(quantize()(k_rope, k_rope, v, k_nope, *call[:4], quant_scale_kv, quant_scale_kv)[2])
            stored = ((caches[0], _joined(k_out, k_rest)), (caches[1], values))
        for cache, given in stored:
            _stored(name, "paged_kv_cache", cache, given, slots, heads_first)
        return q_out, q_rest

    return rope_quantize_fp8_append_paged_kv_cache


def _joined(first: Any, second: Any) -> Any:
    if not is_torch(first):
        return np.concatenate([first, second], axis=-1)
    import torch

    return torch.cat([first.view(torch.uint8), second.view(torch.uint8)], dim=-1).view(first.dtype)


# What is here, by the module in which upstream has it.
PLACES = {"flashinfer.page": (get_seq_lens, get_batch_indices_positions, append_paged_mla_kv_cache, append_paged_kv_cache)}
