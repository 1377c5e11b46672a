"""vLLM's custom operators: outputs that callers bring, ids without a slot of their own, logarithms by heads, and copies to and from pages."""

from __future__ import annotations

from typing import Any, Callable, Optional

import numpy as np

from ..._arrays import dtype_name, is_torch
from ..._ops import function
from .._adapt import Call, NotOffered, named, refuse
from .._layouts import as_given
from .._routes import placed_rows
from .arrays import Run, as_f32, bare, dense, like, type_of, with_zeros_behind
from .checks import of_shape, of_type, shape_of, writable
from .vllm_routers import softmax_with_bias

LEAST_OF_A_ROW = 1.0 / 512  # vLLM's least scale, 1 / (448 * 512), times 448
MOST_EXPERTS = 8191  # our op has one slot more, of 8192
SMALL_PROBLEM = 64  # ids up to which problems of grouped products may come turned


def numbers(name: str, argument: str, value: Any, *kinds: str) -> np.ndarray:
    of_type(name, argument, value, *kinds)
    array = bare(value)
    return array.numpy() if is_torch(array) else np.asarray(array)


def at(array: Any, rows: np.ndarray) -> Any:
    """Rows as an index of the array's kind."""
    return as_given(np.ascontiguousarray(rows.astype(np.int64)), array)


# ---- norms ----


def order_of_norm(name: str) -> Callable[[Call], None]:
    """How versions that round once add their squares is not known."""

    def hook(call: Call) -> None:
        rounded = call["weight_order"] == "rounded"
        if not rounded and call.get("mode") == "hopper":
            raise refuse(name, "is hopper, offered with weight_order=fused are golden and fast", kind=NotOffered, code="unsupported", argument="mode")
        call["kernel"] = "vllm" if rounded else "flashinfer"

    return hook


def block_of_norm(call: Call) -> None:
    """From 256 tokens on the kernel has blocks of 256 threads, of which the order of its sum hangs."""
    value = bare(call["input"])
    if getattr(value, "ndim", 2) > 2:
        for name in ("input", "residual"):
            array = bare(call[name])
            whole = array.is_contiguous() if is_torch(array) else array.flags.c_contiguous
            if not whole:
                raise refuse("fused_add_rms_norm", "is not contiguous, expected so with more than two dimensions", argument=name)
            call[name] = like(call[name], array.reshape(-1, array.shape[-1]))
        value = bare(call["input"])
    order_of_norm("fused_add_rms_norm")(call)
    if call["kernel"] == "vllm" and getattr(value, "ndim", 0) and value.shape[0] >= 256:
        call["kernel"] = "vllm_256"


# ---- attention ----


def merged(run: Run, call: Call) -> None:
    """Log-sum-exps are [heads, tokens]. Where neither side has a key, which is infinite, the prefix's output stands, with -inf."""
    name, out_lse = "merge_attn_states", call.pop("output_lse")
    tokens, heads, _ = shape_of(name, "prefix_output", call["prefix_output"], 3)
    for argument in ("prefix_lse", "suffix_lse"):
        of_shape(name, argument, call[argument], (heads, tokens))
        of_type(name, argument, call[argument], "f32")
    if out_lse is not None:
        of_shape(name, "output_lse", out_lse, (heads, tokens))
        of_type(name, "output_lse", out_lse, "f32")
        writable(name, "output_lse", out_lse)
    turned = {theirs: dense(bare(call.pop(argument)).swapaxes(0, 1)) for argument, theirs in (("prefix_lse", "s_a"), ("suffix_lse", "s_b"))}
    empty = np.isinf(np.asarray(turned["s_a"])) & np.isinf(np.asarray(turned["s_b"]))
    output, prefix, nobody = bare(call["output"]), bare(call["prefix_output"]), tuple(at(bare(call["output"]), index) for index in np.nonzero(empty))
    kept = dense(prefix[nobody])
    made = run({**call, **turned})
    output[nobody] = kept
    if out_lse is not None:
        lse = bare(made[1] if isinstance(made, tuple) else made)
        bare(out_lse)[...] = lse.swapaxes(0, 1)
        bare(out_lse)[nobody[::-1]] = -float("inf")


def without_lse(call: Call) -> None:
    lse = call.pop("lse")
    if lse is not None and int(np.prod(tuple(getattr(bare(lse), "shape", (1,))))):
        raise refuse("sm100_cutlass_mla_decode", "has room, offered is an empty one or None", kind=NotOffered, code="unsupported", argument="lse")


# ---- routing ----


def chosen(run: Run, call: Call) -> None:
    """token_expert_indices[t, k] is k * tokens + t. Ids may be int64 or uint32 too."""
    name, places, ids, bias = "topk_softmax", call.pop("token_expert_indices"), call["topk_ids"], call["e_score_correction_bias"]
    tokens, topk = shape_of(name, "topk_weights", call["topk_weights"], 2)
    for argument, value in (("token_expert_indices", places), ("topk_ids", ids)):
        of_shape(name, argument, value, (tokens, topk))
        if argument != "topk_ids" or str(bare(ids).dtype).rpartition(".")[2] != "uint32":  # which no op of ours has
            of_type(name, argument, value, "i32", *(("i64",) if argument == "topk_ids" else ()))
        writable(name, argument, value)
    if call.pop("e_score_correction_bias") is not None:
        return softmax_with_bias(name, {**call, "token_expert_indices": places, "e_score_correction_bias": bias})
    if type_of(ids) != "i32":
        call["topk_ids"] = as_given(np.empty((tokens, topk), np.int32), bare(ids))
    run(call)
    if type_of(ids) != "i32":
        made = bare(call["topk_ids"])
        bare(ids)[...] = made.to(bare(ids).dtype) if is_torch(made) else made
    bare(places)[...] = as_given(np.arange(tokens * topk, dtype=np.int32).reshape(topk, tokens).T.copy(), bare(places))


def aligned(run: Run, call: Call) -> None:
    """Ids are 0 to num_experts - 1; our op has one slot more, for -1. What is no id is the number of ids, blocks of nobody are expert 0's. With a map of experts to a rank's own,
    those that it has not and ids of no expert have no rows, and blocks of nobody are -1."""
    name, expert_map = "moe_align_block_size", call.pop("expert_map")
    ids = numbers(name, "topk_ids", call["topk_ids"], "i32", "i64")
    experts, block = call["num_experts"], call["block_size"]
    for argument, value in (("num_experts", experts), ("block_size", block)):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
            raise refuse(name, f"is {value!r}, expected a positive number", argument=argument)
    if experts > MOST_EXPERTS:
        raise refuse(name, f"is {experts}, offered are {MOST_EXPERTS} at most", kind=NotOffered, code="unsupported", argument="num_experts")
    if expert_map is not None:
        of_shape(name, "expert_map", expert_map, (experts,))
        own = numbers(name, "expert_map", expert_map, "i32", "i64")
        if own.size and not -1 <= own.min() <= own.max() < experts:
            raise refuse(name, f"holds {own.min()} to {own.max()}, expected -1 to {experts - 1}", argument="expert_map")
        known = (ids >= 0) & (ids < experts)
        ids = np.where(known, own[np.where(known, ids, 0)], -1)
    elif ids.size and not 0 <= ids.min() <= ids.max() < experts:
        raise refuse(name, f"holds {ids.min()} to {ids.max()}, expected experts 0 to {experts - 1}", argument="topk_ids")
    room = {argument: bare(call[argument]) for argument in ("sorted_token_ids", "experts_ids", "num_tokens_post_pad")}
    for argument, array in room.items():
        shape_of(name, argument, array, 1)
        of_type(name, argument, array, "i32")
        writable(name, argument, array)
    total = int((-(-np.bincount(ids[ids >= 0].astype(np.int64), minlength=experts) // block) * block).sum())
    for argument, wanted in (("sorted_token_ids", total), ("experts_ids", total // block), ("num_tokens_post_pad", 1)):
        if room[argument].shape[0] < wanted:
            raise refuse(name, f"has room for {room[argument].shape[0]}, expected {wanted} at least", argument=argument, code="bad_shape")
    if expert_map is not None:
        return _rows_of_own(ids, experts, block, room)
    fresh = lambda size: as_given(np.zeros(size, np.int32), room["experts_ids"])
    blocks, cumsum = fresh(room["experts_ids"].shape[0]), fresh(experts + 2)
    run({**call, "num_experts": experts + 1, "experts_ids": blocks, "cumsum_buffer": cumsum, "pad_sorted_token_ids": True})
    room["experts_ids"][...] = blocks


def _rows_of_own(ids: np.ndarray, experts: int, block: int, room: dict) -> None:
    places, blocks = room["sorted_token_ids"].shape[0], room["experts_ids"].shape[0]
    rows = placed_rows(ids, 0, experts, max(-(-places // block), blocks), block)
    made = np.where(rows.expanded < 0, ids.size, rows.expanded).astype(np.int32)
    for argument, array in (("sorted_token_ids", made[:places]), ("experts_ids", rows.of_tile[:blocks]), ("num_tokens_post_pad", rows.total)):
        room[argument][: len(array)] = as_given(np.ascontiguousarray(array), room[argument])


def straight_problems(call: Call) -> None:
    """Of few ids upstream turns the problems, which our op does not."""
    ids = bare(call["topk_ids"])
    count = int(np.prod(tuple(getattr(ids, "shape", (0,)))))
    if call["blockscale_offsets"] is None and count <= SMALL_PROBLEM:
        text = f"has {count} ids, offered without blockscale_offsets are more than {SMALL_PROBLEM}: upstream turns smaller problems"
        raise refuse("get_cutlass_moe_mm_data", text, kind=NotOffered, code="unsupported", argument="topk_ids")


# ---- quantizers and products ----


def e4m3_room(like_this: Any, shape: tuple) -> Any:
    array = bare(like_this)
    if is_torch(array):
        import torch

        return torch.empty(shape, dtype=torch.float8_e4m3fn)
    from ..._arrays import as_dtype

    return as_dtype(np.zeros(shape, np.uint8), "f8_e4m3")


def _fp32(like_this: Any, values: np.ndarray) -> Any:
    return as_given(np.ascontiguousarray(values, np.float32), bare(like_this))


@named("scaled_fp8_quant")
def scaled_fp8_quant(
    input: Any, scale: Any = None, num_token_padding: Optional[int] = None, scale_ub: Any = None, use_per_token_if_dynamic: bool = False,
    output: Any = None, group_shape: Any = None, **how: Any,
) -> tuple[Any, Any]:  # fmt: skip
    """Codes and their scale: one for all, given or found, or one for each row."""
    name = "scaled_fp8_quant"
    rows, columns = shape_of(name, "input", input, 2)
    of_type(name, "input", input, "bf16", "f16", "f32")
    if group_shape is not None:
        raise refuse(name, "is given, offered is None", kind=NotOffered, code="unsupported", argument="group_shape")
    if num_token_padding is not None and (isinstance(num_token_padding, bool) or not isinstance(num_token_padding, (int, np.integer)) or num_token_padding < 0):
        raise refuse(name, f"is {num_token_padding!r}, expected None or a number of rows", argument="num_token_padding")
    wanted = (max(num_token_padding or 0, rows), columns)
    if output is not None:
        if num_token_padding is not None:
            raise refuse(name, "is given, expected None with output", argument="num_token_padding")
        of_type(name, "output", output, "f8_e4m3")
        of_shape(name, "output", output, wanted)
        writable(name, "output", output)
    values = like(input, dense(bare(input)))
    if scale is None and use_per_token_if_dynamic:
        if scale_ub is not None:
            values = _within(name, values, scale_ub)
        codes, scales = _rows_by_themselves(values, rows, columns, how)
        if wanted[0] > rows:
            padded = _fp32(input, np.zeros((wanted[0], 1)))
            padded[:rows] = scales
            scales = padded
    else:
        scales = _fp32(input, np.zeros(1)) if scale is None else _one_scale(name, scale)
        codes = e4m3_room(input, (rows, columns))
        if rows and columns:
            function("sgl_per_tensor_quant_fp8")(values, codes, scales, is_static=scale is not None, **{"divide": "ieee", **how})
    if output is None and wanted[0] == rows:
        return codes, scales if scale is None else scale
    whole = output if output is not None else e4m3_room(input, wanted)
    _copy_codes(whole, codes, rows)
    return whole, scales if scale is None else scale


def _one_scale(name: str, scale: Any, argument: str = "scale") -> Any:
    of_type(name, argument, scale, "f32")
    if int(np.prod(tuple(bare(scale).shape))) != 1:
        raise refuse(name, f"has shape {list(bare(scale).shape)}, expected one number", argument=argument, code="bad_shape")
    return dense(bare(scale).reshape(1))


def _within(name: str, values: Any, scale_ub: Any) -> Any:
    """In fp32, no larger than the bound of the largest magnitude: what is larger gets the largest code in any case."""
    bound = float(numbers(name, "scale_ub", _one_scale(name, scale_ub, "scale_ub"), "f32")[0])
    if bound != bound:
        raise refuse(name, "is nan, expected a number", argument="scale_ub")
    wide, most = as_f32(bare(values)), max(bound, LEAST_OF_A_ROW)
    return wide.clamp(-most, most) if is_torch(wide) else np.clip(wide, np.float32(-most), np.float32(most))


def _rows_by_themselves(values: Any, rows: int, columns: int, how: dict) -> tuple[Any, Any]:
    """A row is a group: the largest magnitude, at least 1/512, divided by 448; elements divided by the scale."""
    scales, room = _fp32(values, np.full((rows, 1), LEAST_OF_A_ROW / 448)), -columns % 16  # zeros behind a row change nothing
    codes = e4m3_room(values, (rows, columns + room))
    values = like(values, with_zeros_behind(bare(values), room)) if room else values
    if rows and columns:
        function("sgl_per_token_group_quant_8bit")(values, codes, scales, group_size=columns + room, eps=LEAST_OF_A_ROW, **{"divide": "ieee", **how})
    return like(codes, dense(bare(codes)[:, :columns])), scales


def _copy_codes(target: Any, codes: Any, rows: int) -> None:
    to, of = bare(target), bare(codes)
    if is_torch(to):
        import torch

        to.view(torch.uint8)[:rows] = of.view(torch.uint8)
    else:
        to.view(np.uint8)[:rows] = of.view(np.uint8)


@named("per_token_group_quant_fp8")
def per_token_group_quant_fp8(
    x: Any, group_size: int, eps: float = 1e-10, dtype: Any = None, column_major_scales: bool = False, *, tma_aligned_scales: bool = False,
    out_q: Any = None, use_ue8m0: Optional[bool] = None, **how: Any,
) -> tuple[Any, Any]:  # fmt: skip
    """Codes and a scale for each group of a row. Elements are divided by the scale, which use_ue8m0 makes a power of two."""
    name = "per_token_group_quant_fp8"
    shape = shape_of(name, "x", x, 1, 2, 3, 4)
    of_type(name, "x", x, "bf16", "f16", "f32")
    if dtype is not None and dtype_name(dtype) != "f8_e4m3":
        raise refuse(name, f"is {dtype!r}, offered is float8_e4m3fn", kind=NotOffered, code="unsupported", argument="dtype")
    if isinstance(group_size, bool) or not isinstance(group_size, (int, np.integer)) or group_size < 1 or not shape[-1] or shape[-1] % group_size:
        raise refuse(name, f"is {group_size!r}, expected a divisor of {shape[-1]}", argument="group_size")
    if tma_aligned_scales:
        raise refuse(name, "is True, offered is False", kind=NotOffered, code="unsupported", argument="tma_aligned_scales")
    if out_q is not None:
        of_shape(name, "out_q", out_q, shape)
        of_type(name, "out_q", out_q, "f8_e4m3")
        writable(name, "out_q", out_q)
    values, groups = like(x, dense(bare(x)).reshape(-1, shape[-1])), shape[-1] // group_size
    rows = bare(values).shape[0]
    codes = e4m3_room(x, (rows, shape[-1]))
    how = {"divide": "ieee", **how}
    if use_ue8m0:
        words = as_given(np.zeros((rows, -(-groups // 4)), np.int32), bare(x))
        function("sgl_per_token_group_quant_8bit")(values, codes, words, group_size=group_size, eps=eps, scale_ue8m0=True, **how)
        exponents = np.ascontiguousarray(np.asarray(words)).view(np.uint8)[:, :groups].astype(np.uint32)
        scales = _fp32(x, (exponents << 23).view(np.float32))
    else:
        scales = _fp32(x, np.zeros((rows, groups)))
        function("sgl_per_token_group_quant_8bit")(values, codes, scales, group_size=group_size, eps=eps, **how)
    whole = bare(codes).reshape(shape)
    scales = scales.reshape(*shape[:-1], groups)
    if column_major_scales:
        scales = dense(scales.swapaxes(-1, -2)).swapaxes(-1, -2) if len(shape) > 1 else scales
    if out_q is None:
        return like(codes, whole), scales
    _copy_codes(out_q, like(codes, whole), shape[0])
    return out_q, scales


@named("cutlass_scaled_mm")
def cutlass_scaled_mm(a: Any, b: Any, scale_a: Any, scale_b: Any, out_dtype: Any, bias: Any = None, **how: Any) -> Any:
    """a b of e4m3 codes or int8; scales are one for all, one for each row of a and column of b, or of blocks of 128."""
    name = "cutlass_scaled_mm"
    shape, (inner, columns) = shape_of(name, "a", a, 2, 3, 4), shape_of(name, "b", b, 2)
    of_type(name, "a", a, "f8_e4m3", "i8")
    of_type(name, "b", b, type_of(a))
    if shape[-1] != inner:
        raise refuse(name, f"has {inner} rows, expected {shape[-1]}", argument="b", code="bad_shape")
    flat = like(a, dense(bare(a)).reshape(-1, inner))
    rows = bare(flat).shape[0]
    for argument, value in (("scale_a", scale_a), ("scale_b", scale_b)):
        of_type(name, argument, value, "f32")
    counts = [int(np.prod(tuple(bare(value).shape))) for value in (scale_a, scale_b)]
    if counts[0] in (1, rows) and counts[1] in (1, columns):
        spread = lambda value, count, size: dense(bare(value).reshape(-1) if count == size else bare(value).reshape(-1).repeat(size))
        each = (spread(scale_a, counts[0], rows).reshape(-1, 1), spread(scale_b, counts[1], columns).reshape(-1, 1))
        made = function("int8_scaled_mm" if type_of(a) == "i8" else "fp8_scaled_mm")(flat, b, *each, out_dtype, bias, **how)
    else:
        blocks = (rows, -(-inner // 128)), (-(-inner // 128), -(-columns // 128))
        if type_of(a) == "i8" or bias is not None:
            text = "are of blocks, offered with e4m3 and no bias" if bias is not None or counts[0] != 1 else f"have {counts} numbers"
            raise refuse(name, text, kind=NotOffered, code="unsupported", argument="scale_a and scale_b")
        for argument, value, wanted in (("scale_a", scale_a, blocks[0]), ("scale_b", scale_b, blocks[1])):
            of_shape(name, argument, value, wanted)
        columns_first = lambda value: dense(bare(value).swapaxes(0, 1)).swapaxes(0, 1)
        made = _block_product(flat, b, columns_first(scale_a), columns_first(scale_b), rows, out_dtype, how)
    return like(made, bare(made).reshape(*shape[:-1], columns))


def _with_rows(codes: Any, room: int) -> Any:
    """Rows of zeros behind those of [rows, K] codes."""
    if not room:
        return codes
    array = bare(codes)
    shape = (array.shape[0] + room, array.shape[1])
    longer = array.new_zeros(shape, dtype=_torch().uint8).view(array.dtype) if is_torch(array) else np.zeros(shape, array.dtype)
    more = like(codes, longer)
    _copy_codes(more, codes, array.shape[0])
    return more


def _block_product(a: Any, b: Any, scale_a: Any, scale_b: Any, rows: int, out_dtype: Any, how: dict) -> Any:
    """Our op takes multiples of four rows and of 128 columns."""
    columns = bare(b).shape[1]
    if room := -rows % 4:
        a = _with_rows(a, room)
        scales = _fp32(a, np.ones((scale_a.shape[1], rows + room)))
        scales[:, :rows] = scale_a.swapaxes(0, 1)
        scale_a = scales.swapaxes(0, 1)
    if room := -columns % 128:
        wide = _with_rows(like(b, dense(bare(b).swapaxes(0, 1))), room)
        b = like(wide, bare(wide).swapaxes(0, 1))
    made = function("fp8_blockwise_scaled_mm")(a, b, scale_a, scale_b, out_dtype, **how)
    return like(made, dense(bare(made)[:rows, :columns]))


def _torch() -> Any:
    import torch

    return torch


# ---- copies to and from pages ----


def _as_it_is(name: str, kv_cache_dtype: Any) -> None:
    if kv_cache_dtype not in ("auto", "bfloat16"):
        raise refuse(name, f"is {kv_cache_dtype!r}, offered is 'auto'", kind=NotOffered, code="unsupported", argument="kv_cache_dtype")


def slots_of(name: str, slot_mapping: Any, most: int, there: int) -> np.ndarray:
    """The slots of the first tokens, as many as there are; negative ones are skipped."""
    (count,) = shape_of(name, "slot_mapping", slot_mapping, 1)
    slots = numbers(name, "slot_mapping", slot_mapping, "i64")
    if count > most:
        raise refuse(name, f"has {count} slots, expected at most {most}, the tokens", argument="slot_mapping", code="bad_shape")
    if count and slots.max() >= there:
        raise refuse(name, f"holds {slots.max()}, expected below {there}", argument="slot_mapping")
    return slots


@named("concat_and_cache_mla")
def concat_and_cache_mla(kv_c: Any, k_pe: Any, kv_cache: Any, slot_mapping: Any, kv_cache_dtype: str, scale: Any, skip_scale: bool = False) -> None:
    """Both parts of a token's key beside one another, where its slot is."""
    name = "concat_and_cache_mla"
    _as_it_is(name, kv_cache_dtype)
    tokens, rank = shape_of(name, "kv_c", kv_c, 2)
    _, rope = shape_of(name, "k_pe", k_pe, 2)
    of_shape(name, "k_pe", k_pe, (tokens, rope))
    pages, size, width = shape_of(name, "kv_cache", kv_cache, 3)
    of_shape(name, "kv_cache", kv_cache, (pages, size, rank + rope))
    of_type(name, "kv_c", kv_c, "bf16", "f16", "f32")
    for argument, value in (("k_pe", k_pe), ("kv_cache", kv_cache)):
        of_type(name, argument, value, type_of(kv_c))
    writable(name, "kv_cache", kv_cache)
    slots = slots_of(name, slot_mapping, tokens, pages * size)
    kept = np.flatnonzero(slots >= 0)
    cache, page, row = bare(kv_cache), slots[kept] // size, slots[kept] % size
    parts = [bare(part)[at(cache, kept)] for part in (kv_c, k_pe)]
    for part, begin, end in zip(parts, (0, rank), (rank, rank + rope)):
        cache[:, :, begin:end][at(cache, page), at(cache, row)] = part


@named("reshape_and_cache_flash")
def reshape_and_cache_flash(
    key: Any, value: Any, key_cache: Any, value_cache: Any, slot_mapping: Any, kv_cache_dtype: str, k_scale: Any, v_scale: Any
) -> None:
    """Keys and values of tokens where their slots are; caches [pages, tokens of a page, heads, width]."""
    name = "reshape_and_cache_flash"
    _as_it_is(name, kv_cache_dtype)
    tokens, heads, width = shape_of(name, "key", key, 3)
    pages, size = shape_of(name, "key_cache", key_cache, 4)[:2]
    of_type(name, "key", key, "bf16", "f16", "f32")
    for argument, array, wanted in (("value", value, (tokens, heads, width)), ("key_cache", key_cache, (pages, size, heads, width)), ("value_cache", value_cache, (pages, size, heads, width))):
        of_shape(name, argument, array, wanted)
        of_type(name, argument, array, type_of(key))
    for argument, array in (("key_cache", key_cache), ("value_cache", value_cache)):
        writable(name, argument, array)
    slots = slots_of(name, slot_mapping, tokens, pages * size)
    kept = np.flatnonzero(slots >= 0)
    for part, cache in ((bare(key), bare(key_cache)), (bare(value), bare(value_cache))):
        cache[at(cache, slots[kept] // size), at(cache, slots[kept] % size)] = part[at(part, kept)]


def _gathered(name: str, src_cache: Any, dst: Any, block_table: Any, cu_seq_lens: Any, batch_size: Any, seq_starts: Any) -> None:
    pages, size = shape_of(name, "src_cache", src_cache, 3, 4)[:2]
    tail = tuple(bare(src_cache).shape[2:])
    total = shape_of(name, "dst", dst, len(tail) + 1)[0]
    of_shape(name, "dst", dst, (total, *tail))
    for argument, value in (("src_cache", src_cache), ("dst", dst)):
        of_type(name, argument, value, type_of(src_cache))
    writable(name, "dst", dst)
    batch, width = shape_of(name, "block_table", block_table, 2)
    table, ends = numbers(name, "block_table", block_table, "i32"), numbers(name, "cu_seq_lens", cu_seq_lens, "i32")
    if isinstance(batch_size, bool) or not isinstance(batch_size, (int, np.integer)) or not 0 <= batch_size <= batch:
        raise refuse(name, f"is {batch_size!r}, expected at most {batch}, the rows of block_table", argument="batch_size")
    if ends.shape != (batch_size + 1,) or ends[0] != 0 or (np.diff(ends) < 0).any() or ends[-1] > total:
        raise refuse(name, f"is {ends.tolist()}, expected {batch_size + 1} ends from 0 to at most {total}", argument="cu_seq_lens")
    starts = np.zeros(batch_size, np.int64)
    if seq_starts is not None:
        starts = numbers(name, "seq_starts", seq_starts, "i32").astype(np.int64)
        if starts.shape != (batch_size,) or (starts < 0).any():
            raise refuse(name, f"is {starts.tolist()}, expected {batch_size} first tokens", argument="seq_starts")
    lengths = np.diff(ends).astype(np.int64)
    requests = np.repeat(np.arange(batch_size), lengths)
    places = np.arange(ends[-1]) - np.repeat(ends[:-1], lengths) + starts[requests]
    if places.size and places.max() // size >= width:
        raise refuse(name, f"reach token {places.max()}, expected below {width * size}, which block_table holds", argument="cu_seq_lens")
    chosen_pages = table[requests, places // size]
    if places.size and not 0 <= chosen_pages.min() <= chosen_pages.max() < pages:
        raise refuse(name, f"names pages {chosen_pages.min()} to {chosen_pages.max()}, expected 0 to {pages - 1}", argument="block_table")
    source = bare(src_cache)
    bare(dst)[: len(places)] = source[at(source, chosen_pages), at(source, places % size)]


@named("cp_gather_cache")
def cp_gather_cache(src_cache: Any, dst: Any, block_table: Any, cu_seq_lens: Any, batch_size: int, seq_starts: Any = None) -> None:
    """The tokens of requests one after the other, from pages."""
    _gathered("cp_gather_cache", src_cache, dst, block_table, cu_seq_lens, batch_size, seq_starts)


@named("gather_and_maybe_dequant_cache")
def gather_and_maybe_dequant_cache(src_cache: Any, dst: Any, block_table: Any, cu_seq_lens: Any, *rest: Any, **others: Any) -> None:
    """As cp_gather_cache. Behind cu_seq_lens stand batch_size, kv_cache_dtype, scale and seq_starts; newer versions have token_to_seq and num_tokens in
    place of batch_size."""
    name = "gather_and_maybe_dequant_cache"
    newer = "token_to_seq" in others or (bool(rest) and hasattr(bare(rest[0]), "shape"))
    names = ("token_to_seq", "num_tokens", "kv_cache_dtype", "scale", "seq_starts") if newer else ("batch_size", "kv_cache_dtype", "scale", "seq_starts")
    given = dict(zip(names, rest))
    if len(rest) > len(names) or given.keys() & others.keys() or others.keys() - set(names):
        raise refuse(name, f"takes {', '.join(names)} behind cu_seq_lens, and has {[*given, *others]}")
    given.update(others)
    missing = [argument for argument in names if argument not in given and argument not in ("seq_starts", "scale")]
    if missing:
        raise refuse(name, "is required", argument=missing[0], code="missing_argument")
    _as_it_is(name, given["kv_cache_dtype"])
    batch = given["batch_size"] if not newer else shape_of(name, "cu_seq_lens", cu_seq_lens, 1)[0] - 1
    if newer and (ends := numbers(name, "cu_seq_lens", cu_seq_lens, "i32"))[-1] != given["num_tokens"]:
        raise refuse(name, f"is {given['num_tokens']!r}, expected {ends[-1]}, the last of cu_seq_lens", argument="num_tokens")
    _gathered(name, src_cache, dst, block_table, cu_seq_lens, batch, given.get("seq_starts"))


COPIES = (concat_and_cache_mla, reshape_and_cache_flash, cp_gather_cache, gather_and_maybe_dequant_cache)


# ---- what its layers ask of the machine ----


def _from(name: str, least: int) -> Callable[[int], bool]:
    def supports(cuda_device_capability: int) -> bool:
        return cuda_device_capability is not None and cuda_device_capability >= least

    supports.__name__ = supports.__qualname__ = name
    return supports


ASKED = {
    **{
        name: _from(name, least)
        for name, least in (
            ("cutlass_scaled_mm_supports_fp8", 89),
            ("cutlass_scaled_mm_supports_block_fp8", 90),
            ("cutlass_group_gemm_supported", 90),
            ("cutlass_scaled_mm_supports_fp4", 100),
        )
    },
    "cutlass_sparse_scaled_mm_supported": lambda cuda_device_capability: False,
}
