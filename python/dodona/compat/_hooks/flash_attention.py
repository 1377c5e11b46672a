"""FlashAttention 3's functions as sgl_kernel and vLLM have them: keys are gathered request by request, and two ops do the rest."""

from __future__ import annotations

from typing import Any, Callable, Optional

import numpy as np

from ..._arrays import is_torch
from ..._ops import function
from .._adapt import NotOffered, named, refuse
from .._layouts import as_given
from .arrays import as_f32, bare, dense, like, type_of, with_zeros_behind
from .checks import of_shape, of_type, shape_of, writable
from .flash_mla import with_sink

ROTATED, LATENT = 64, (512, 256)  # columns of an absorbed query's parts; the fewer stand before zeros


def _numbers(name: str, argument: str, value: Any, count: int) -> np.ndarray:
    """int32 [count]."""
    of_shape(name, argument, value, (count,))
    of_type(name, argument, value, "i32")
    value = bare(value)
    return (value.numpy() if is_torch(value) else np.asarray(value)).astype(np.int64)


def _offsets(name: str, argument: str, value: Any, end: int, whole: bool) -> np.ndarray:
    """Where the tokens of requests begin, and the end."""
    (count,) = shape_of(name, argument, value, 1)
    if count < 2:
        raise refuse(name, f"has shape [{count}], expected at least one request", argument=argument, code="bad_shape")
    ends = _numbers(name, argument, value, count)
    for i, at in enumerate(ends):
        if at < (ends[i - 1] if i else 0) or at > end or (i == 0 and at != 0) or (whole and i == count - 1 and at != end):
            until = f"end at {end}" if whole else f"stay within {end}"
            raise refuse(name, f"holds {at} at element {i}, expected offsets that begin at 0, do not fall and {until}", argument=argument)
    return ends


def _lengths(name: str, argument: str, value: Any, count: int, most: np.ndarray) -> np.ndarray:
    lengths = _numbers(name, argument, value, count)
    for i, length in enumerate(lengths):
        if not 0 <= length <= most[i]:
            raise refuse(name, f"holds {length} at element {i}, expected 0 to {most[i]}", argument=argument)
    return lengths


def _only(name: str, **given: Any) -> None:
    """What is offered of the arguments that must be as if they were not there."""
    for argument, value in given.items():
        if value is not None and not (isinstance(value, (bool, int, float)) and value == 0):
            raise refuse(name, "is given, offered is none", kind=NotOffered, code="unsupported", argument=argument)


def _sight(name: str, causal: Any, window_size: Any, softcap: Any) -> dict:
    """What queries see, and the cap. A window that ends with the query's own key is a causal one."""
    if softcap is None or not softcap >= 0:
        raise refuse(name, f"is {softcap!r}, expected at least 0", argument="softcap")
    left, right = (-1, -1) if window_size is None else window_size
    if right > 0:
        raise refuse(name, f"is {tuple(window_size)}, offered are windows that end with the query's own key, or do not end", kind=NotOffered, code="unsupported", argument="window_size")
    return {"causal": bool(causal) or right == 0, "window_left": int(left) if left is not None and left >= 0 else -1, "logits_soft_cap": float(softcap)}


def _ragged(rows: Any, begins: np.ndarray, lengths: np.ndarray) -> tuple[Any, np.ndarray]:
    """Rows [n, ..] of requests one behind the other, and where each begins; as they lie, where they lie so."""
    ends = np.concatenate([[0], np.cumsum(lengths)])
    if np.array_equal(begins, ends[:-1]):
        return rows, ends
    at = np.concatenate([np.arange(first, first + count) for first, count in zip(begins, lengths)]).astype(np.int64) if len(lengths) else np.zeros(0, np.int64)
    return like(rows, bare(rows)[as_given(at, bare(rows))]), ends


def _attend(q: Any, k: Any, v: Any, q_ends: np.ndarray, k_ends: np.ndarray, scale: Optional[float], sinks: Any, how: dict) -> tuple[Any, Any]:
    """out [T, N, Dv] and natural logarithms [N, T]."""
    more = {} if sinks is None else {"sinks": sinks}
    bounds = {name: as_given(ends.astype(np.int32), bare(q)) for name, ends in (("qo_indptr", q_ends), ("kv_indptr", k_ends))}
    out, lse = function("batch_prefill_with_ragged_kv_cache")(
        q=q, k=k, v=v, **bounds, **more, sm_scale=float(scale or 0.0), return_lse=True, return_lse_base_on_e=True, **how
    )
    return out, dense(bare(lse).swapaxes(0, 1))


def _given_back(name: str, out: Any, room: Any) -> Any:
    if room is None:
        return out
    bare(room)[...] = bare(out)
    return room


def _room(name: str, out: Any, shape: tuple, kind: str) -> None:
    if out is not None:
        of_shape(name, "out", out, shape)
        of_type(name, "out", out, kind)
        writable(name, "out", out)


@named("flash_attn_varlen_func")
def flash_attn_varlen_func(
    q: Any, k: Any, v: Any, cu_seqlens_q: Any, cu_seqlens_k: Any, max_seqlen_q: Any = None, max_seqlen_k: Any = None, seqused_q: Any = None,
    seqused_k: Any = None, page_table: Any = None, softmax_scale: Optional[float] = None, causal: bool = False, qv: Any = None, q_descale: Any = None,
    k_descale: Any = None, v_descale: Any = None, window_size: Any = (-1, -1), attention_chunk: Any = 0, softcap: float = 0.0, num_splits: int = 1,
    pack_gqa: Any = None, sm_margin: int = 0, return_softmax_lse: bool = False, sinks: Any = None, score_mod: Any = None, aux_tensors: Any = None,
    ver: int = 3, out: Any = None, *, only_qv: bool = False, **mode: Any,
) -> Any:  # fmt: skip
    """Requests of queries [T, N, D], keys and values one behind the other; with return_softmax_lse natural logarithms [N, T] too."""
    name = "flash_attn_varlen_func"
    if page_table is not None:
        return flash_attn_with_kvcache(
            q, k, v, cache_seqlens=seqused_k, page_table=page_table, cu_seqlens_q=cu_seqlens_q, qv=qv, softmax_scale=softmax_scale, causal=causal,
            window_size=window_size, softcap=softcap, return_softmax_lse=return_softmax_lse, sinks=sinks, q_descale=q_descale, k_descale=k_descale,
            v_descale=v_descale, attention_chunk=attention_chunk, score_mod=score_mod, aux_tensors=aux_tensors, out=out, only_qv=only_qv, **mode,
        )  # fmt: skip
    _only(
        name, qv=qv, q_descale=q_descale, k_descale=k_descale, v_descale=v_descale, attention_chunk=attention_chunk, score_mod=score_mod,
        aux_tensors=aux_tensors, only_qv=only_qv,
    )  # fmt: skip
    (tokens, heads, _), (keys, _, _), (values, _, value_width) = (shape_of(name, argument, of, 3) for argument, of in (("q", q), ("k", k), ("v", v)))
    if values != keys:
        raise refuse(name, f"has {values} rows, expected {keys} as k has", argument="v", code="bad_shape")
    q_ends = _offsets(name, "cu_seqlens_q", cu_seqlens_q, tokens, True)
    k_ends = _offsets(name, "cu_seqlens_k", cu_seqlens_k, keys, False)
    if len(q_ends) != len(k_ends):
        raise refuse(name, f"has {len(k_ends)} elements, expected {len(q_ends)} as cu_seqlens_q has", argument="cu_seqlens_k", code="bad_shape")
    _room(name, out, (tokens, heads, value_width), type_of(q))
    sight = _sight(name, causal, window_size, softcap)
    used_q, used_k = np.diff(q_ends), np.diff(k_ends)
    if seqused_k is not None:
        used_k = _lengths(name, "seqused_k", seqused_k, len(used_k), used_k)
    if seqused_q is not None:
        used_q = _lengths(name, "seqused_q", seqused_q, len(used_q), used_q)
    (k, k_starts), (v, _), (q_used, q_starts) = _ragged(k, k_ends[:-1], used_k), _ragged(v, k_ends[:-1], used_k), _ragged(q, q_ends[:-1], used_q)
    made, lse = _attend(q_used, k, v, q_starts, k_starts, softmax_scale, sinks, {**sight, **mode})
    if seqused_q is not None and bare(made).shape[0] != tokens:  # queries that are not used get zeros
        at = as_given(np.concatenate([np.arange(first, first + n) for first, n in zip(q_ends, used_q)]).astype(np.int64), bare(q))
        whole, sums = (part.new_zeros(shape) if is_torch(part) else np.zeros(shape, part.dtype) for part, shape in ((bare(made), (tokens, heads, value_width)), (lse, (heads, tokens))))
        whole[at], sums[:, at] = bare(made), lse
        made, lse = like(made, whole), sums
    made = _given_back(name, made, out)
    return (made, lse) if return_softmax_lse else made


def _pages(name: str, argument: str, cache: Any, table: np.ndarray, begins: np.ndarray, lengths: np.ndarray) -> Any:
    """The tokens of requests one behind the other, of pages [pages, P, heads, width]."""
    array = bare(cache)
    size = array.shape[1]
    flat = array.reshape(array.shape[0] * size, *array.shape[2:])
    parts = []
    for row, first, count in zip(table, begins, lengths):
        j = np.arange(first, first + count)
        parts.append(row[j // size] * size + j % size)
    at = np.concatenate(parts) if parts else np.zeros(0, np.int64)
    return like(cache, flat[as_given(at.astype(np.int64), array)])


@named("flash_attn_with_kvcache")
def flash_attn_with_kvcache(
    q: Any, k_cache: Any, v_cache: Any, k: Any = None, v: Any = None, qv: Any = None, rotary_cos: Any = None, rotary_sin: Any = None,
    cache_seqlens: Any = None, cache_batch_idx: Any = None, cache_leftpad: Any = None, page_table: Any = None, cu_seqlens_q: Any = None,
    cu_seqlens_k_new: Any = None, max_seqlen_q: Any = None, rotary_seqlens: Any = None, q_descale: Any = None, k_descale: Any = None,
    v_descale: Any = None, softmax_scale: Optional[float] = None, causal: bool = False, window_size: Any = (-1, -1), attention_chunk: Any = None,
    softcap: float = 0.0, rotary_interleaved: bool = True, scheduler_metadata: Any = None, num_splits: int = 0, pack_gqa: Any = None, sm_margin: int = 0,
    return_softmax_lse: bool = False, sinks: Any = None, score_mod: Any = None, aux_tensors: Any = None, ver: int = 3, out: Any = None, *,
    only_qv: bool = False, **mode: Any,
) -> Any:  # fmt: skip
    """Queries [B, Q, N, D], or with cu_seqlens_q [T, N, D], behind a cache by request or by page; new keys go into it. With qv the queries of
    absorbed MLA: q is their rotated part, v_cache the latent rows."""
    name = "flash_attn_with_kvcache"
    _only(
        name, rotary_cos=rotary_cos, rotary_sin=rotary_sin, q_descale=q_descale, k_descale=k_descale, v_descale=v_descale,
        attention_chunk=attention_chunk, score_mod=score_mod, aux_tensors=aux_tensors, only_qv=only_qv, cu_seqlens_k_new=cu_seqlens_k_new,
    )  # fmt: skip
    batched = cu_seqlens_q is None
    shape = shape_of(name, "q", q, 4 if batched else 3)
    pages, size, *_ = shape_of(name, "k_cache", k_cache, 4)
    values = shape_of(name, "v_cache", v_cache, 4)
    if values[:2] != (pages, size):
        raise refuse(name, f"has shape {list(values)}, expected [{pages}, {size}, ..] as k_cache has", argument="v_cache", code="bad_shape")
    q_ends = np.arange(shape[0] + 1) * shape[1] if batched else _offsets(name, "cu_seqlens_q", cu_seqlens_q, shape[0], True)
    requests, tokens = len(q_ends) - 1, int(q_ends[-1])
    table = _table(name, page_table, cache_batch_idx, requests, pages)
    lengths = _cached(name, cache_seqlens, requests, np.full(requests, table.shape[1] * size))
    begins = np.zeros(requests, np.int64) if cache_leftpad is None else _lengths(name, "cache_leftpad", cache_leftpad, requests, lengths)
    _named_pages(name, table, lengths, size, pages)
    _room(name, out, (*shape[:-1], values[3]), type_of(q))
    sight = _sight(name, causal, window_size, softcap)
    q_rows = like(q, bare(q).reshape(tokens, *shape[-2:])) if batched else q
    fresh = _fresh(name, k, v, k_cache, v_cache, table, lengths)
    if qv is not None:
        _check_absorbed(name, q_rows, qv, k_cache, v_cache, sight)
    if qv is not None and not fresh and cache_leftpad is None:
        made, lse = _absorbed(name, q_rows, qv, k_cache, v_cache, q_ends, table, lengths, softmax_scale, sinks, sight, mode)
    else:
        keys, worths = (_pages(name, argument, cache, table, begins, lengths - begins) for argument, cache in (("k_cache", k_cache), ("v_cache", v_cache)))
        lengths = lengths - begins
        if fresh:
            keys, worths = (_behind(cached, lengths, new) for cached, new in ((keys, k), (worths, v)))
            lengths = lengths + shape_of(name, "k", k, 4)[1]
    if qv is not None and (fresh or cache_leftpad is not None):  # rows one behind the other are pages of one token
        single, ends = (like(rows, bare(rows)[:, None]) for rows in (keys, worths)), np.concatenate([[0], np.cumsum(lengths)])
        rows = np.full((requests, int(lengths.max(initial=0))), 0)
        for b in range(requests):
            rows[b, : lengths[b]] = np.arange(ends[b], ends[b + 1])
        made, lse = _absorbed(name, q_rows, qv, *single, q_ends, rows, lengths, softmax_scale, sinks, sight, mode)
    elif qv is None:
        made, lse = _attend(q_rows, keys, worths, q_ends, np.concatenate([[0], np.cumsum(lengths)]), softmax_scale, sinks, {**sight, **mode})
    if fresh:
        fresh()
    if batched:
        made = like(made, bare(made).reshape(*shape[:-1], bare(made).shape[-1]))
        lse = dense(lse.reshape(lse.shape[0], shape[0], shape[1]).swapaxes(0, 1))
    made = _given_back(name, made, out)
    return (made, lse) if return_softmax_lse else made


def _table(name: str, page_table: Any, cache_batch_idx: Any, requests: int, pages: int) -> np.ndarray:
    """Pages of each request; a cache by request has one."""
    if page_table is None:
        rows = np.arange(requests) if cache_batch_idx is None else _numbers(name, "cache_batch_idx", cache_batch_idx, requests)
        for i, row in enumerate(rows):
            if not 0 <= row < pages:
                argument = "k_cache" if cache_batch_idx is None else "cache_batch_idx"
                raise refuse(name, f"has {pages} rows, expected one for request {i}" if cache_batch_idx is None else f"holds {row} at element {i}, expected 0 to {pages - 1}", argument=argument, code="bad_shape")
        return rows.reshape(-1, 1)
    if cache_batch_idx is not None:
        raise refuse(name, "is given, expected none with page_table", argument="cache_batch_idx")
    count, width = shape_of(name, "page_table", page_table, 2)
    of_type(name, "page_table", page_table, "i32")
    if count != requests:
        raise refuse(name, f"has {count} rows, expected {requests}", argument="page_table", code="bad_shape")
    table = bare(page_table)
    return (table.numpy() if is_torch(table) else np.asarray(table)).astype(np.int64).reshape(count, width)


def _cached(name: str, cache_seqlens: Any, requests: int, room: np.ndarray) -> np.ndarray:
    if cache_seqlens is None:
        return room
    if isinstance(cache_seqlens, (int, np.integer)) and not isinstance(cache_seqlens, bool):
        cache_seqlens = np.full(requests, cache_seqlens, np.int32)
    return _lengths(name, "cache_seqlens", cache_seqlens, requests, room)


def _named_pages(name: str, table: np.ndarray, lengths: np.ndarray, size: int, pages: int) -> None:
    for i, (row, length) in enumerate(zip(table, lengths)):
        used = row[: -(-length // size)] if size else row[:0]
        for at, page in enumerate(used):
            if not 0 <= page < pages:
                raise refuse(name, f"holds {page} at [{i}, {at}], expected 0 to {pages - 1}", argument="page_table")


def _fresh(name: str, k: Any, v: Any, k_cache: Any, v_cache: Any, table: np.ndarray, lengths: np.ndarray) -> Optional[Callable[[], None]]:
    """What puts new keys and values [B, n, ..] into the cache behind the tokens that are there."""
    if (k is None) != (v is None):
        raise refuse(name, "is missing, expected beside the other", argument="v" if v is None else "k", code="missing_argument")
    if k is None:
        return None
    count, (pages, size) = shape_of(name, "k", k, 4)[1], bare(k_cache).shape[:2]
    for argument, value, cache in (("k", k, k_cache), ("v", v, v_cache)):
        of_shape(name, argument, value, (len(table), count, *bare(cache).shape[2:]))
        of_type(name, argument, value, type_of(cache))
        writable(name, f"{argument}_cache", cache)
    if (lengths + count > table.shape[1] * size).any():
        raise refuse(name, f"has {count} new keys, expected room for them behind the {int(lengths.max())} in the cache", argument="k", code="bad_shape")
    _named_pages(name, table, lengths + count, size, pages)

    def put() -> None:
        for b, (row, length) in enumerate(zip(table, lengths)):
            j = np.arange(length, length + count)
            at = tuple(as_given(part, bare(k_cache)) for part in (row[j // size], j % size))
            bare(k_cache)[at], bare(v_cache)[at] = bare(k)[b], bare(v)[b]

    return put


def _behind(cached: Any, lengths: np.ndarray, new: Any) -> Any:
    """Each request's cached rows, then its new ones."""
    array, more = bare(cached), bare(new)
    parts, first = [], 0
    for b, length in enumerate(lengths):
        parts += [array[first : first + length], more[b]]
        first += length
    if is_torch(array):
        import torch

        return torch.cat(parts)
    return like(cached, np.concatenate(parts))


def _check_absorbed(name: str, q: Any, qv: Any, k_cache: Any, v_cache: Any, sight: dict) -> None:
    tokens, heads, _ = bare(q).shape
    if sight["window_left"] >= 0:
        raise refuse(name, "is given, offered is none with qv", kind=NotOffered, code="unsupported", argument="window_size")
    _only(name, softcap=sight["logits_soft_cap"])
    latent = bare(qv).shape[-1] if bare(qv).shape[-1] in LATENT else LATENT[0]
    of_shape(name, "qv", like(qv, bare(qv).reshape(-1, *bare(qv).shape[-2:])), (tokens, heads, latent))
    of_shape(name, "q", q, (tokens, heads, ROTATED))
    for argument, cache, columns in (("k_cache", k_cache, ROTATED), ("v_cache", v_cache, latent)):
        of_shape(name, argument, cache, (*bare(cache).shape[:2], 1, columns))


def _absorbed(
    name: str, q: Any, qv: Any, k_cache: Any, v_cache: Any, q_ends: np.ndarray, table: np.ndarray, lengths: np.ndarray, scale: Optional[float], sinks: Any,
    sight: dict, mode: dict,
) -> tuple[Any, Any]:  # fmt: skip
    """A sink is applied to the rounded output: one rounding more."""
    latent = like(qv, bare(qv).reshape(-1, *bare(qv).shape[-2:]))
    width = bare(latent).shape[-1]
    if width != LATENT[0]:  # scores and values of zeros add nothing
        latent, v_cache = (like(part, with_zeros_behind(bare(part), LATENT[0] - width)) for part in (latent, v_cache))
    size = bare(k_cache).shape[1]
    counts = -(-lengths // size)
    pages = np.concatenate([row[:count] for row, count in zip(table, counts)]) if len(table) else np.zeros(0)
    whole = {"qo_indptr": q_ends, "kv_indptr": np.concatenate([[0], np.cumsum(counts)]), "kv_indices": pages, "kv_len_arr": lengths}
    out, lse = function("batch_mla_paged_attention")(
        q_nope=latent, q_pe=q, ckv_cache=like(v_cache, bare(v_cache)[:, :, 0]), kpe_cache=like(k_cache, bare(k_cache)[:, :, 0]),
        **{key: as_given(value.astype(np.int32), bare(q)) for key, value in whole.items()},
        sm_scale=float(scale or (ROTATED + width) ** -0.5), causal=sight["causal"], return_lse=True, return_lse_base_on_e=True, **mode,
    )  # fmt: skip
    out = out if width == LATENT[0] else like(out, dense(bare(out)[..., :width]))
    if sinks is not None:
        of_shape(name, "sinks", sinks, (bare(q).shape[1],))
        of_type(name, "sinks", sinks, "f32", "bf16")
        sinks = as_f32(sinks)
        with_sink(name, out, lse, sinks)
        sums = bare(lse)
        together = np.logaddexp(np.asarray(sums, np.float64), np.asarray(bare(sinks), np.float64)).astype(np.float32)
        lse = like(lse, as_given(together, sums))
    return out, dense(bare(lse).swapaxes(0, 1))


# ---- FlashMLA's dense prefill ----


def _of_flash_mla(name: str, q: Any, k: Any, v: Any, ends: tuple, scale: Optional[float], causal: Any, dropout_p: Any, deterministic: Any, mode: dict) -> tuple[Any, Any]:
    if dropout_p or deterministic:
        raise refuse(name, "is given, expected as if it were not", argument="dropout_p" if dropout_p else "deterministic")
    if any(getattr(part, "requires_grad", False) for part in (q, k, v)):
        q, k, v = (part.detach() for part in (q, k, v))
    q, k, v = (like(part, dense(bare(part))) for part in (q, k, v))
    out, lse = flash_attn_varlen_func(q, k, v, *ends, softmax_scale=scale, causal=causal, return_softmax_lse=True, **mode)
    return out, lse.swapaxes(0, 1)  # [T, N], a head's numbers one behind the other


@named("flash_attn_varlen_func")
def flash_mla_varlen(
    q: Any, k: Any, v: Any, cu_seqlens_qo: Any, cu_seqlens_kv: Any, max_seqlen_qo: int, max_seqlen_kv: int, dropout_p: float = 0.0,
    softmax_scale: Optional[float] = None, causal: bool = False, deterministic: bool = False, is_varlen: bool = True, **mode: Any,
) -> tuple[Any, Any]:  # fmt: skip
    """The output and natural logarithms [T, N]. Gradients are not offered: what comes back has none."""
    return _of_flash_mla("flash_attn_varlen_func", q, k, v, (cu_seqlens_qo, cu_seqlens_kv), softmax_scale, causal, dropout_p, deterministic, mode)


def _packed(name: str, argument: str, value: Any, widths: tuple) -> list[Any]:
    """Columns of one array, side by side; the last part has what is left."""
    columns = shape_of(name, argument, value, 3)[2]
    if sum(widths) >= columns:
        raise refuse(name, f"has {columns} columns, expected more than {sum(widths)}", argument=argument, code="bad_shape")
    ends = np.cumsum([0, *widths, columns - sum(widths)])
    return [like(value, bare(value)[:, :, begin:end]) for begin, end in zip(ends, ends[1:])]


@named("flash_attn_varlen_qkvpacked_func")
def flash_mla_varlen_qkvpacked(
    qkv: Any, cu_seqlens: Any, max_seqlen: int, head_dim_qk: int, dropout_p: float = 0.0, softmax_scale: Optional[float] = None, causal: bool = False,
    deterministic: bool = False, is_varlen: bool = True, **mode: Any,
) -> tuple[Any, Any]:  # fmt: skip
    """flash_attn_varlen_func of [T, N, 2 D + Dv]."""
    name = "flash_attn_varlen_qkvpacked_func"
    parts = _packed(name, "qkv", qkv, (head_dim_qk, head_dim_qk))
    return _of_flash_mla(name, *parts, (cu_seqlens, cu_seqlens), softmax_scale, causal, dropout_p, deterministic, mode)


@named("flash_attn_varlen_kvpacked_func")
def flash_mla_varlen_kvpacked(
    q: Any, kv: Any, cu_seqlens_qo: Any, cu_seqlens_kv: Any, max_seqlen_qo: int, max_seqlen_kv: int, head_dim_qk: int, dropout_p: float = 0.0,
    softmax_scale: Optional[float] = None, causal: bool = False, deterministic: bool = False, is_varlen: bool = True, **mode: Any,
) -> tuple[Any, Any]:  # fmt: skip
    """flash_attn_varlen_func of keys and values in one, [T, N, D + Dv]."""
    name = "flash_attn_varlen_kvpacked_func"
    parts = _packed(name, "kv", kv, (head_dim_qk,))
    return _of_flash_mla(name, q, *parts, (cu_seqlens_qo, cu_seqlens_kv), softmax_scale, causal, dropout_p, deterministic, mode)
