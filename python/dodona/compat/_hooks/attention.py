"""Attention and what is around it: states, rotations, caches, pages."""

from __future__ import annotations

import inspect
from typing import Any, Callable

import numpy as np

from ..._arrays import dtype_name, is_torch
from ..._ops import function
from .._adapt import Call, NotOffered, refuse
from .._layouts import as_given
from .arrays import Run, as_f32, bare, bytes_as, closed_up, dense, dense_copy, joined, joined_rows, like, not_writable, with_zeros_behind
from .checks import of_shape, of_type, shape_of


def lse_in_f32(call: Call) -> None:
    call["s_a"], call["s_b"] = as_f32(call["s_a"]), as_f32(call["s_b"])


def states_in_f32(call: Call) -> None:
    call["s"] = as_f32(call["s"])


def first_state_in_place(run: Run, call: Call) -> None:
    """The merged state replaces the first one, in the tokens that `mask` marks. Upstream widens a log-sum-exp that is not float32 into
    memory of its own, and what it writes there is lost."""
    mask = call.pop("mask")
    for name in ("v", "s"):
        if reason := not_writable(bare(call[name])):
            raise refuse("merge_state_in_place", f"{reason}, and is written", argument=name)
    first = {"v": bare(call["v"]), "s": as_f32(bare(call["s"]))}
    if is_torch(first["v"]) != is_torch(first["s"]):
        text = f"is a {type(first['s']).__name__}, expected a {type(first['v']).__name__} as v"
        raise refuse("merge_state_in_place", text, argument="s", code="bad_dtype")
    if mask is not None and tuple(mask.shape) != tuple(first["v"].shape[:1]):
        text = f"has shape {list(mask.shape)}, expected {list(first['v'].shape[:1])}"
        raise refuse("merge_state_in_place", text, argument="mask", code="bad_shape")
    call["s"], call["s_other"] = first["s"], as_f32(call["s_other"])
    for output, merged in zip(first.values(), run(call)):
        merged = bare(merged)
        if mask is None:
            output[...] = merged
        else:
            output[mask != 0] = merged[mask != 0]


LEAST_OF_STATES = -5e4  # what upstream's Triton kernel begins its maximum with


def variable_length_merge_states(v: Any, s: Any, indptr: Any, **how: Any) -> tuple[Any, Any]:
    """States [n, N, D] of tokens one behind the other, merged: tokens of as many states go through merge_states together. Tokens whose states saw no
    key, or that have none, give zeros and -5e4, as upstream's kernel does."""
    name = "variable_length_merge_states"
    rows, heads, width = shape_of(name, "v", v, 3)
    of_shape(name, "s", s, (rows, heads))
    of_type(name, "v", v, "bf16", "f16")
    (count,) = shape_of(name, "indptr", indptr, 1)
    of_type(name, "indptr", indptr, "i32", "i64")
    ends = np.asarray(bare(indptr)).astype(np.int64)
    if count < 1 or ends[0] < 0 or (np.diff(ends) < 0).any() or ends[-1] > rows:
        raise refuse(name, f"is {ends.tolist()}, expected offsets that do not fall and stay within {rows}", argument="indptr")
    states, values = as_f32(bare(s)), bare(v)
    merged, sums = (as_given(np.zeros(shape, np.float32), values) for shape in ((count - 1, heads, width), (count - 1, heads)))
    merged = merged.to(values.dtype) if is_torch(values) else merged.astype(values.dtype)
    sums[...] = LEAST_OF_STATES
    for length in np.unique(np.diff(ends)):
        tokens = np.flatnonzero(np.diff(ends) == length)
        if not length:
            continue
        at, to = (as_given(rows_of, values) for rows_of in (ends[tokens][:, None] + np.arange(length), tokens))
        made, lse = (bare(part) for part in function("merge_states")(like(v, values[at]), states[at], **how))
        low = lse < LEAST_OF_STATES
        made[low], lse[low] = 0, LEAST_OF_STATES
        merged[to], sums[to] = made, lse
    return like(v, merged), sums


def set_kv_buffer(call: Call) -> None:
    """FusedSetKVBufferArg, taken apart."""
    fused = call.pop("fused_set_kv_buffer_arg", None)
    cache = call["cos_sin_cache"]
    if hasattr(cache, "dtype") and dtype_name(cache.dtype) != "f32":
        raise refuse("apply_rope_with_cos_sin_cache_inplace", "should be float32", argument="cos_sin_cache", code="bad_dtype")
    if fused is None:
        return
    name, argument = "apply_rope_with_cos_sin_cache_inplace", "fused_set_kv_buffer_arg"
    if not all(hasattr(fused, field) for field in ("value", "k_buffer", "v_buffer", "k_scale", "v_scale", "cache_loc")):
        raise refuse(name, f"is {fused!r}, expected a FusedSetKVBufferArg", argument=argument, code="bad_dtype")
    for scale in ("k_scale", "v_scale"):
        if getattr(fused, scale) is not None:
            raise refuse(name, f"has a {scale}, which upstream does not support", argument=argument)
    call.update({field: getattr(fused, field) for field in ("value", "k_buffer", "v_buffer", "cache_loc")})


def dense_or_sparse(run: Run, call: Call) -> Any:
    """With a list of slots flash_mla_with_kvcache is another kernel, which looks at neither tables nor lengths."""
    for strided in ("k_cache", "block_table", "indices"):
        call[strided] = closed_up(call[strided])
    name, indices = "flash_mla_with_kvcache", call.pop("indices")
    if indices is None:
        return run(call)
    if call["causal"]:
        raise refuse(name, "is True, expected False with indices", argument="causal")
    if not call["is_fp8_kvcache"]:
        raise refuse(name, "is False, expected True with indices: the sparse kernel reads fp8 caches alone", argument="is_fp8_kvcache")
    sparse = function("flash_mla_sparse_decode")
    taken = {"indices": indices, **{key: value for key, value in call.items() if key in inspect.signature(sparse).parameters}}
    return sparse(**{**taken, "k_cache": bytes_as(bare(call["k_cache"]), "u8")})


def rotated_copies(run: Run, call: Call) -> Any:
    """Queries and keys stay, and their copies are rotated."""
    rotated = tuple(like(call[name], dense_copy(bare(call[name]))) for name in ("query", "key"))
    run({**call, "query": rotated[0], "key": rotated[1]})
    return rotated


def separate_outputs(run: Run, call: Call) -> None:
    """The operator of the rotation reads q and k and writes q_rope and k_rope, which need not be the same memory."""
    name, written = "apply_rope_pos_ids_cos_sin_cache", {}
    call["head_size"], call["is_neox"] = (tuple(call["q"].shape) or (0,))[-1], not call.pop("interleave")
    for of, output in (("q", "q_rope"), ("k", "k_rope")):
        source, target = call.pop(of), call[output]
        if (source.dtype, source.shape) != (target.dtype, target.shape):
            text = f"is {target.dtype} {list(target.shape)}, expected {source.dtype} {list(source.shape)} as {of} is"
            raise refuse(name, text, argument=output, code="bad_shape")
        if source.data_ptr() != target.data_ptr():
            if reason := not_writable(target):
                raise refuse(name, f"{reason}, and is written", argument=output)
            written[output], call[output] = target, dense_copy(source.detach())
    run(call)
    for output, target in written.items():
        target.copy_(call[output])


def room_to_count(call: Call) -> None:
    """Of the kernel's counters nothing is used, but a caller that gives too little would not run on a GPU."""
    name, argument = "trtllm_batch_decode_with_kv_cache_mla", "multi_ctas_kv_counter_buffer"
    room = bare(call.pop(argument))
    if room is None:
        return
    if not hasattr(room, "shape"):
        raise refuse(name, f"is {room!r}, expected an array", argument=argument, code="bad_dtype")
    query = bare(call["query"])
    size, needed = room.itemsize * int(np.prod(tuple(room.shape))), counter_bytes(query.shape[0], query.shape[-2])
    contiguous = room.is_contiguous() if is_torch(room) else room.flags.c_contiguous
    for wrong, text in (
        (not contiguous, "must be contiguous"),
        ((room.data_ptr() if is_torch(room) else room.ctypes.data) % 16, "must be 16-byte aligned"),
        (size < needed, f"is too small: got {size} bytes, need {needed} bytes"),
    ):
        if wrong:
            raise refuse(name, f"{argument} {text}", argument=argument, code="bad_shape")


def counter_bytes(batch_size: int, num_qo_heads: int, sm_count: int = 148) -> int:
    """A word for each head or multiprocessor."""
    return -(-max(batch_size * num_qo_heads, sm_count) // 8) * 32


def scales_as_numbers(name: str, first: Callable[[Call], None] = lambda call: None) -> Callable[[Call], None]:
    """Scales may be tensors of one element."""

    def read(call: Call) -> None:
        first(call)
        for scale in ("bmm1_scale", "bmm2_scale"):
            if hasattr(call[scale], "dtype") and hasattr(call[scale], "item"):
                if dtype_name(call[scale].dtype) != "f32":
                    raise refuse(name, f"is a tensor of {call[scale].dtype}, expected float32", argument=scale, code="bad_dtype")
                call[scale] = float(call[scale].item())

    return read


def one_query_token(run: Run, call: Call) -> Any:
    """The output of one query token a request has no dimension for it."""
    out, query = call["out"], call["query"]
    if getattr(out, "ndim", 4) == 3 and query.shape[1] == 1:
        call["out"] = out[:, None]
    result = run(call)
    if type(result) is not tuple:
        return result if out is None else out
    return result if out is None else (out, *result[1:])


# Scales that versions up to 0.4 take as tensors.
NOT_READ = {"bmm1_scale_log2_tensor": None, "bmm2_scale_tensor": None}


LATENT, FEWER = 512, 256  # numbers of a latent row; a smaller model's stand before zeros


def _zeros_between(rows: Any) -> Any:
    """[latent | rotated part] as rows of the larger model."""
    return joined([with_zeros_behind(rows[..., :FEWER], LATENT - FEWER), rows[..., FEWER:]], -1)


def of_any_rank(run: Run, call: Call) -> Any:
    """Latent rows of 256: scores and outputs of zeros add nothing."""
    if call["kv_lora_rank"] != FEWER:
        return pages_or_tokens(run, call)
    name, out = "trtllm_batch_decode_with_kv_cache_mla", call["out"]
    wide = FEWER + call["qk_rope_head_dim"]
    for argument in ("query", "kv_cache"):
        value = bare(call[argument])
        if getattr(value, "ndim", 0) < 2 or value.shape[-1] != wide:
            raise refuse(name, f"has shape {list(getattr(value, 'shape', ()))}, expected rows of {wide}", argument=argument, code="bad_shape")
    if out is not None and (reason := not_writable(bare(out))):
        raise refuse(name, f"{reason}, and is written", argument="out")
    given = None if out is None else like(out, with_zeros_behind(bare(out), LATENT - FEWER))
    rows = {argument: like(call[argument], _zeros_between(bare(call[argument]))) for argument in ("query", "kv_cache")}
    result = pages_or_tokens(run, {**call, **rows, "kv_lora_rank": LATENT, "out": given})
    made, *lse = result if type(result) is tuple else (result,)
    narrow = like(made, dense(bare(made)[..., :FEWER]))
    if out is not None:
        bare(out)[...] = bare(narrow)
        narrow = out
    return (narrow, *lse) if lse else narrow


def pages_or_tokens(run: Run, call: Call) -> Any:
    """With sparse_mla_top_k the tables list tokens, query by query, which is another kernel."""
    name = "trtllm_batch_decode_with_kv_cache_mla"
    for argument in NOT_READ:
        if call.pop(argument) is not None:
            text = "is given, offered is None: the versions that take it do not read it; give bmm1_scale and bmm2_scale"
            raise refuse(name, text, kind=NotOffered, code="unsupported", argument=argument)
    if not call.pop("uses_shared_paged_kv_idx"):  # tables of keys and of values, [B, 2, P], which MLA has in the same pages
        tables = call["block_tables"]
        if tables.ndim != 3 or tables.shape[1] != 2 or not bool((tables[:, 0] == tables[:, 1]).all()):
            raise refuse(name, "are not [B, 2, P] with the same pages twice, as expected without uses_shared_paged_kv_idx", argument="block_tables")
        call["block_tables"] = tables[:, 0].contiguous() if is_torch(tables) else np.ascontiguousarray(tables[:, 0])
    threshold = call.pop("skip_softmax_threshold_scale_factor")
    if threshold is not None and not 0 < threshold <= 2.0**-30:  # what is skipped then is lost in fp32 in any case
        text = f"is {threshold!r}, offered is None or at most 2^-30: kernels that skip more do not compute this"
        raise refuse(name, text, kind=NotOffered, code="unsupported", argument="skip_softmax_threshold_scale_factor")
    if not call["sparse_mla_top_k"]:
        del call["sparse_mla_top_k"]
        return queries_of_any_number(lambda left: one_query_token(run, left), call)
    if call["page_size"]:
        raise refuse(name, "is given, expected none with sparse_mla_top_k", argument="page_size")
    sparse = function("trtllm_batch_decode_sparse_mla")
    taken = inspect.signature(sparse).parameters
    run_sparse = lambda left: sparse(**{name: value for name, value in left.items() if name in taken})
    return queries_of_any_number(lambda left: one_query_token(run_sparse, left), call)


def queries_of_any_number(run: Run, call: Call) -> Any:
    """With cum_seq_lens_q requests have as many queries as it says, [Tq, N, D]: each request is a call."""
    begins, most = call.pop("cum_seq_lens_q"), call.pop("max_q_len")
    if begins is None:
        return run(call)
    name, query = "trtllm_batch_decode_with_kv_cache_mla", call["query"]
    bounds = [int(bound) for bound in begins]
    lengths = [end - begin for begin, end in zip(bounds, bounds[1:])]
    if query.ndim != 3 or not lengths or bounds[0] != 0 or not bounds[-1] == query.shape[0] > 0 or min(lengths) < 0:
        raise refuse(name, f"is {bounds}, expected to rise from 0 to the {query.shape[0]} queries of [Tq, N, D]", argument="cum_seq_lens_q")
    if most is None or most < max(lengths):
        raise refuse(name, f"is {most}, expected at least the {max(lengths)} queries of the longest request", argument="max_q_len")
    by_query = "sparse_mla_top_k" in call
    given = {output: call[output] for output in ("out", "lse") if call.get(output) is not None}
    for output, array in given.items():
        if reason := not_writable(bare(array)):
            raise refuse(name, f"{reason}, and is written", argument=output)
    made = {output: array.clone() if is_torch(array) else array.copy() for output, array in given.items()}  # a later request may be refused
    results = []
    for request, (begin, end) in enumerate(zip(bounds, bounds[1:])):
        if begin == end:
            continue
        part = {**call, "query": query[begin:end][None], "seq_lens": call["seq_lens"][request : request + 1]}
        part["block_tables"] = call["block_tables"][begin:end][None] if by_query else call["block_tables"][request : request + 1]
        part.update({output: array[begin:end][None] for output, array in made.items()})
        result = run(part)
        results.append(result if type(result) is tuple else (result,))
    for output, array in given.items():
        array[...] = made[output]
    joined = tuple(given[of] if of in given else joined_rows(parts, 2 - i) for i, (of, parts) in enumerate(zip(("out", "lse"), zip(*results))))
    return joined if len(joined) > 1 else joined[0]


def ragged_lengths(call: Call) -> None:
    """Upstream looks at neither dimensions nor type of the lengths, and sglang hands over int64."""
    scales_as_numbers("trtllm_ragged_attention_deepseek")(call)
    lengths = call["seq_lens"]
    if getattr(bare(lengths), "ndim", 1) > 1:
        lengths = lengths.reshape(-1)
    if hasattr(lengths, "dtype") and dtype_name(lengths.dtype) == "i64":
        lengths = lengths.int() if is_torch(lengths) else lengths.astype(np.int32)
    call["seq_lens"] = lengths


def types_of_outputs(call: Call) -> None:
    """Without a type, that of the first output that is given; bytes have none."""
    if call["quantize_dtype"] is None:
        outputs = (call[name] for name in ("q_rope_out", "k_rope_out", "q_nope_out", "k_nope_out"))
        kinds = (dtype_name(out.dtype) for out in outputs if out is not None)
        call["quantize_dtype"] = next((kind for kind in kinds if kind != "u8"), None)


def heads_of_keys(run: Run, call: Call) -> Any:
    """Keys may have heads, [T, H, D], and other widths than queries: they are then rotated and quantized as queries are, with the keys' scale."""
    types_of_outputs(call)
    k_rope, k_nope = call["k_rope"], call["k_nope"]
    latent = k_rope.ndim == 2
    if latent and k_nope.shape[-1] == call["q_nope"].shape[-1]:
        return run(call)
    headed = (lambda array: None if array is None else array[:, None]) if latent else (lambda array: array)
    given, keys = (headed(call["k_rope_out"]), headed(call["k_nope_out"])), (headed(k_rope), headed(k_nope))
    none = {"k_rope_out": None, "k_nope_out": None}
    q_rope_out, _, q_nope_out, _ = run({**call, **none, "k_rope": keys[0][:, 0], "k_nope": call["q_nope"][:, 0]})
    as_queries = {"q_rope": keys[0], "q_nope": keys[1], "q_rope_out": given[0], "q_nope_out": given[1], "quant_scale_q": call["quant_scale_kv"]}
    k_rope_out, _, k_nope_out, _ = run({**call, **none, "k_rope": keys[0][:, 0], "k_nope": keys[1][:, 0], **as_queries})
    if latent:
        k_rope_out, k_nope_out = k_rope_out[:, 0], k_nope_out[:, 0]
    return q_rope_out, k_rope_out, q_nope_out, k_nope_out
