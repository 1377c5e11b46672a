"""FlashMLA's decoding and sparse prefill as its newer versions have them: metadata that make themselves, sinks, lengths of lists, a second cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Optional

import numpy as np

from ..._arrays import is_torch, like_torch, numpy_dtype
from ..._ops import function
from .._adapt import Call, NotOffered, refuse
from .._layouts import E4M3, as_given
from .arrays import Run, bare, bytes_as, closed_up, dense, joined, like, rounded, type_of, with_zeros_behind

ROW = 656  # bytes of a token of 576 numbers in an e4m3 cache
# Tokens of 512 numbers: 448 codes and 64 rotated numbers in bf16, a page's tokens one after another, and behind them all 8 bytes a token, of which 7 are
# the exponents that 64 codes share.
SHORT_ROW, SHORT_CODES, SHORT_ROTATED = 584, 448, 64


@dataclass
class FlashMLASchedMeta:
    """How work is cut, made by the first call that is given it. Later calls must have the same sizes."""

    @dataclass
    class Config:
        b: int
        s_q: int
        h_q: int
        page_block_size: int
        h_k: int
        causal: bool
        is_fp8_kvcache: bool
        topk: Optional[int]
        extra_page_block_size: Optional[int]
        extra_topk: Optional[int]

    have_initialized: bool = False
    config: Optional[Config] = None
    tile_scheduler_metadata: Any = None
    num_splits: Any = None


def get_mla_metadata(*args: Any, **kwargs: Any) -> tuple[FlashMLASchedMeta, None]:
    """Whatever it is given: metadata are made by the call that uses them."""
    return FlashMLASchedMeta(), None


def _shape(name: str, argument: str, value: Any, rank: int) -> tuple:
    shape = getattr(bare(value), "shape", None)
    if shape is None or len(shape) != rank:
        found = f"is {value!r}" if shape is None else f"has shape {list(shape)}"
        raise refuse(name, f"{found}, expected an array of {rank} dimensions", argument=argument, code="bad_shape")
    return tuple(shape)


def _cut(name: str, call: Call, topk: int, seen: FlashMLASchedMeta.Config) -> None:
    """Metadata in the call, of which FlashMLASchedMeta keeps what its first call made."""
    meta = call["tile_scheduler_metadata"]
    if not isinstance(meta, FlashMLASchedMeta):
        if meta is None or call["num_splits"] is None:
            raise refuse(name, f"is {meta!r}, expected what get_mla_metadata gives", argument="tile_scheduler_metadata", code="bad_dtype")
        return
    if call["num_splits"] is not None:
        raise refuse(name, "is given, expected None with a FlashMLASchedMeta", argument="num_splits")
    if meta.have_initialized:
        other = [field for field, value in vars(seen).items() if getattr(meta.config, field) != value]
        if other:
            text = f"was made by a call with {other[0]}={getattr(meta.config, other[0])}, this has {getattr(seen, other[0])}"
            raise refuse(name, text, argument="tile_scheduler_metadata")
    else:
        lengths = call["cache_seqlens"]
        if lengths is None:
            lengths = as_given(np.zeros(seen.b, np.int32), bare(call["q"]))
        made = function("get_mla_metadata")(
            lengths, num_q_tokens_per_head_k=seen.s_q * seen.h_q // max(seen.h_k, 1), num_heads_k=seen.h_k, num_heads_q=seen.h_q, topk=topk,
            is_fp8_kvcache=seen.is_fp8_kvcache,
        )  # fmt: skip
        meta.tile_scheduler_metadata, meta.num_splits = made
        meta.have_initialized, meta.config = True, seen
    call["tile_scheduler_metadata"], call["num_splits"] = meta.tile_scheduler_metadata, meta.num_splits


def _numbers(array: Any) -> np.ndarray:
    array = bare(array)
    return array.numpy() if is_torch(array) else np.asarray(array)


def listed(name: str, indices: Any, lengths: Any, argument: str, step: int, there: int, shift: int = 0) -> np.ndarray:
    """A list with -1 for what names none of the `there` rows or stands behind the length, filled up to a multiple of `step`."""
    if type_of(indices) != "i32":
        raise refuse(name, f"is {bare(indices).dtype}, expected int32", argument="indices", code="bad_dtype")
    rows = _numbers(indices).astype(np.int64)
    rows = np.where((rows < 0) | (rows >= there), -1, rows + shift)
    if lengths is not None:
        if _shape(name, argument, lengths, 1) != (rows.shape[0],) or type_of(lengths) != "i32":
            text = f"is {bare(lengths).dtype} {list(bare(lengths).shape)}, expected int32 [{rows.shape[0]}]"
            raise refuse(name, text, argument=argument, code="bad_shape")
        kept = np.arange(rows.shape[-1]) < _numbers(lengths).reshape(-1, *[1] * (rows.ndim - 1))
        rows = np.where(kept, rows, -1)
    room = -rows.shape[-1] % step
    return np.pad(rows, [(0, 0)] * (rows.ndim - 1) + [(0, room)], constant_values=-1).astype(np.int32)


def with_sink(name: str, out: Any, lse: Any, sink: Any) -> None:
    """out times exp(lse) / (exp(lse) + exp(sink)), lse [.., N] as out is [.., N, D]: one rounding more than a kernel that knows the sink."""
    if sink is None:
        return
    if _shape(name, "attn_sink", sink, 1) != (lse.shape[-1],) or type_of(sink) != "f32":
        text = f"is {bare(sink).dtype} {list(bare(sink).shape)}, expected float32 [{lse.shape[-1]}]"
        raise refuse(name, text, argument="attn_sink", code="bad_shape")
    sinks, sums = _numbers(sink), _numbers(lse)
    with np.errstate(over="ignore", invalid="ignore"):
        share = np.where(np.isinf(sums), np.where(sinks == np.inf, 0.0, 1.0), 1 / (1 + np.exp(sinks.astype(np.float64) - sums)))
    share = share.astype(np.float32)[..., None]
    if is_torch(out):
        out.copy_(out.float() * as_given(share, out))
    elif out.dtype == np.uint16:
        wide = (out.astype(np.uint32) << 16).view(np.float32) * share
        bits = wide.view(np.uint32)
        out[...] = (bits + 0x7FFF + (bits >> 16 & 1) >> 16).astype(np.uint16)
    else:
        out[...] = (out.astype(np.float32) * share).astype(out.dtype)


def _rows_of(name: str, argument: str, cache: Any) -> Any:
    """[tokens, 656] bytes of a cache in pages of any size."""
    shape = _shape(name, argument, cache, 4)
    if shape[2:] != (1, ROW):
        kind = NotOffered if shape[3] != ROW else None
        text = f"has shape {list(shape)}, offered are tokens of {ROW} bytes, [pages, tokens, 1, {ROW}]"
        raise refuse(name, text, argument=argument, code="unsupported" if kind else "bad_shape", **({"kind": kind} if kind else {}))
    return bare(bytes_as(bare(closed_up(cache)), "u8")).reshape(-1, ROW)


def _in_pages(parts: list) -> Any:
    """One cache in pages of 64 tokens."""
    rows = sum(part.shape[0] for part in parts)
    room = -rows % 64
    if is_torch(parts[0]):
        import torch

        joined = torch.cat([*parts, parts[0].new_zeros((room, ROW))]) if len(parts) > 1 or room else parts[0]
    else:
        joined = np.concatenate([*parts, np.zeros((room, ROW), np.uint8)]) if len(parts) > 1 or room else parts[0]
    return joined.reshape(-1, 64, 1, ROW)


def decoded(run: Run, call: Call) -> Any:
    """Dense over tables of pages, or with indices sparse over slots of e4m3 caches."""
    name = "flash_mla_with_kvcache"
    extra = {key: call.pop(key) for key in ("indices", "attn_sink", "extra_k_cache", "extra_indices_in_kvcache", "topk_length", "extra_topk_length")}
    q, cache = _shape(name, "q", call["q"], 4), _shape(name, "k_cache", call["k_cache"], 4)
    indices = extra["indices"]
    sizes = lambda cache, indices: (None if cache is None else bare(cache).shape[1], None if indices is None else bare(indices).shape[-1])
    second = sizes(extra["extra_k_cache"], extra["extra_indices_in_kvcache"])
    seen = FlashMLASchedMeta.Config(*q[:3], cache[1], cache[2], bool(call["causal"]), bool(call["is_fp8_kvcache"]), sizes(None, indices)[1], *second)
    if indices is None:
        given = [key for key, value in extra.items() if value is not None]
        if given:
            raise refuse(name, "is given, expected None without indices", argument=given[0])
        for argument in ("block_table", "cache_seqlens"):
            if call[argument] is None:
                raise refuse(name, "is None, expected with dense attention", argument=argument, code="missing_argument")
        _cut(name, call, 0, seen)
        call["block_table"] = closed_up(call["block_table"])
        if cache[2] > 1 and q[2] % cache[2] == 0:
            return _heads_of_keys(run, call, cache[2])
        call["k_cache"] = closed_up(call["k_cache"])
        return run(call)
    if call["causal"]:
        raise refuse(name, "is True, expected False with indices", argument="causal")
    if not call["is_fp8_kvcache"]:
        raise refuse(name, "is False, expected True with indices: the sparse kernel reads fp8 caches alone", argument="is_fp8_kvcache")
    if q[3] not in (512, 576):
        raise refuse(name, f"has rows of {q[3]}, offered are 576 and 512", kind=NotOffered, code="unsupported", argument="q")
    return (_sparse_short if q[3] == 512 else _sparse)(name, call, extra, seen)


def _heads_of_keys(run: Run, call: Call, heads: int) -> Any:
    """Each head of keys with its share of the queries' heads, cut as all of them are."""
    given = [key for key in ("out", "softmax_lse") if call.get(key) is not None]
    if given:
        text = f"is given, offered with {heads} heads of keys is None"
        raise refuse("flash_mla_with_kvcache", text, kind=NotOffered, code="unsupported", argument=given[0])
    q, cache = call["q"], call["k_cache"]
    share = bare(q).shape[2] // heads
    parts = []
    for head in range(heads):
        queries = like(q, dense(bare(q)[:, :, head * share : (head + 1) * share]))
        keys = like(cache, dense(bare(cache)[:, :, head : head + 1]))
        parts.append(run({**call, "q": queries, "k_cache": keys}))
    return tuple(like(made[0], joined([bare(part) for part in made], axis)) for made, axis in zip(zip(*parts), (2, 1)))


def _lists(name: str, extra: dict, first: int, second: Optional[int], step: int) -> list[np.ndarray]:
    """The slots of the first cache, of `first` tokens, and those of a second one, if there is one, as if its tokens stood behind."""
    _shape(name, "indices", extra["indices"], 3)
    lists = [listed(name, extra["indices"], extra["topk_length"], "topk_length", step, first)]
    if second is not None:
        _shape(name, "extra_indices_in_kvcache", extra["extra_indices_in_kvcache"], 3)
        lists.append(listed(name, extra["extra_indices_in_kvcache"], extra["extra_topk_length"], "extra_topk_length", step, second, first))
    return lists


def _second(name: str, extra: dict) -> bool:
    """Whether there is a second cache; what is said about it, is said together."""
    if (extra["extra_k_cache"] is None) != (extra["extra_indices_in_kvcache"] is None):
        raise refuse(name, "is given alone, expected extra_k_cache and extra_indices_in_kvcache together", argument="extra_k_cache")
    if extra["extra_k_cache"] is None and extra["extra_topk_length"] is not None:
        raise refuse(name, "is given, expected None without extra_k_cache", argument="extra_topk_length")
    return extra["extra_k_cache"] is not None


def _sparse(name: str, call: Call, extra: dict, seen: FlashMLASchedMeta.Config) -> Any:
    parts = [_rows_of(name, key, extra[key] if key in extra else call[key]) for key in ("k_cache", "extra_k_cache")[: 1 + _second(name, extra)]]
    indices = np.concatenate(_lists(name, extra, parts[0].shape[0], parts[1].shape[0] if len(parts) > 1 else None, 64), axis=-1)
    _cut(name, call, indices.shape[-1], seen)
    taken = ("q", "tile_scheduler_metadata", "num_splits", "head_dim_v", "softmax_scale", "out", "softmax_lse", "mode", "threads", "gpu")
    given = {key: call[key] for key in taken if call.get(key) is not None}
    slots = as_given(indices, bare(call["q"]))
    out, lse = function("flash_mla_sparse_decode")(**given, k_cache=_in_pages(parts), indices=slots)
    with_sink(name, bare(out), bare(lse).swapaxes(1, 2), extra["attn_sink"])
    return out, lse


def _short_pages(name: str, argument: str, cache: Any) -> tuple[np.ndarray, int]:
    """[pages, bytes] of a cache of tokens of 512, and how many tokens a page holds."""
    shape = _shape(name, argument, cache, 4)
    if shape[2:] != (1, SHORT_ROW):
        raise refuse(name, f"has shape {list(shape)}, expected tokens of {SHORT_ROW} bytes with queries of 512, [pages, tokens, 1, {SHORT_ROW}]", argument=argument, code="bad_shape")
    return _numbers(bytes_as(bare(closed_up(cache)), "u8")).reshape(shape[0], shape[1] * SHORT_ROW), shape[1]


def _short_rows(pages: np.ndarray, tokens: int, slots: np.ndarray) -> np.ndarray:
    """The bf16 numbers of the tokens at the slots, [slots, 512]: codes times powers of two, which bf16 holds but for what is denormal there."""
    kept = SHORT_CODES + 2 * SHORT_ROTATED
    rows = pages[:, : tokens * kept].reshape(len(pages), tokens, kept)[slots // tokens, slots % tokens]
    exponents = pages[:, tokens * kept :].reshape(len(pages), tokens, 8)[slots // tokens, slots % tokens, : SHORT_CODES // 64]
    scales = np.where(exponents == 255, np.nan, np.ldexp(np.float64(1), exponents.astype(np.int32) - 127))
    numbers = E4M3[rows[:, :SHORT_CODES]].reshape(len(slots), SHORT_CODES // 64, 64) * scales[..., None]
    codes = rounded(numbers.reshape(len(slots), SHORT_CODES).astype(np.float32), "bf16").view(np.uint16)
    return np.concatenate([codes, np.ascontiguousarray(rows[:, SHORT_CODES:]).view(np.uint16)], axis=1)


def _sparse_short(name: str, call: Call, extra: dict, seen: FlashMLASchedMeta.Config) -> Any:
    """Tokens of 512, whose values are whole rows: the sparse prefill of the tokens that are named, as bf16 numbers."""
    if call.get("mode") == "hopper":
        raise refuse(name, "is hopper, offered with rows of 512 are golden and fast", kind=NotOffered, code="unsupported", argument="mode")
    caches = [_short_pages(name, key, extra[key] if key in extra else call[key]) for key in ("k_cache", "extra_k_cache")[: 1 + _second(name, extra)]]
    counts = [len(pages) * tokens for pages, tokens in caches]
    lists = np.concatenate(_lists(name, extra, counts[0], counts[1] if len(counts) > 1 else None, 128), axis=-1)
    if tuple(lists.shape[:2]) != tuple(bare(call["q"]).shape[:2]):
        raise refuse(name, f"has shape {list(bare(extra['indices']).shape)}, expected {list(bare(call['q']).shape[:2])} lists", argument="indices", code="bad_shape")
    _cut(name, call, lists.shape[-1], seen)
    named, places = np.unique(lists, return_inverse=True)
    named = named[(absent := int((named < 0).any())) :]
    begins = np.cumsum([0, *counts])
    rows = [_short_rows(*cache, named[(named >= begin) & (named < end)] - begin) for cache, begin, end in zip(caches, begins, begins[1:])]
    q = bare(call["q"])
    batch, queries, heads, width = q.shape
    keys = np.pad(np.concatenate(rows), ((0, 0), (0, 64)))[:, None].view(numpy_dtype("bf16"))
    out, _, lse = function("flash_mla_sparse_fwd")(
        with_zeros_behind(q, 64).reshape(batch * queries, heads, width + 64), like_torch(keys, "bf16", q) if is_torch(q) else keys, as_given((places.reshape(batch * queries, 1, -1) - absent).astype(np.int32), q),
        call["softmax_scale"] or width**-0.5, 512, logarithms="natural", **{key: call[key] for key in ("mode", "threads", "gpu") if call.get(key) is not None},
    )  # fmt: skip
    with_sink(name, bare(out), bare(lse), extra["attn_sink"])
    return _written(call, "out", out, (batch, queries, heads, width)), _written(call, "softmax_lse", lse, (batch, queries, heads), (1, 2))


def _written(call: Call, key: str, made: Any, shape: tuple, turned: Optional[tuple] = None) -> Any:
    """What was made in upstream's shape, in the array that the caller gave for it where he gave one."""
    array = bare(made).reshape(shape)
    array = dense(array.swapaxes(*turned)) if turned else array
    given = call.get(key)
    if given is None:
        return like(made, array)
    bare(given)[...] = array if is_torch(array) else array.view(bare(given).dtype)
    return given


def prefilled(run: Run, call: Call) -> Any:
    name = "flash_mla_sparse_fwd"
    sink, lengths = call.pop("attn_sink"), call.pop("topk_length")
    q, kv = _shape(name, "q", call["q"], 3), _shape(name, "kv", call["kv"], 3)
    if q[2] == kv[2] == 512:  # values are whole rows then, and scores have no further terms
        if call.get("mode") == "hopper":
            raise refuse(name, "is hopper, offered with rows of 512 are golden and fast", kind=NotOffered, code="unsupported", argument="mode")
        call["q"], call["kv"] = (like(call[key], with_zeros_behind(bare(call[key]), 64)) for key in ("q", "kv"))
    elif q[2] != 576:
        raise refuse(name, f"has rows of {q[2]}, offered are 576 and 512", kind=NotOffered, code="unsupported", argument="q")
    _shape(name, "indices", call["indices"], 3)
    call["indices"] = as_given(listed(name, call["indices"], lengths, "topk_length", 128, kv[0]), bare(call["indices"]))
    out, largest, lse = run(call)
    with_sink(name, bare(out), bare(lse), sink)
    return out, largest, lse


