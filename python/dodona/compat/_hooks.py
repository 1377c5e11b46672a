"""What upstream's functions do with their arguments before the kernel sees them, for NumPy arrays and torch tensors alike."""

from __future__ import annotations

import ctypes
import enum
import inspect
import os
from typing import Any, Callable, Mapping, Optional

import numpy as np

from .._arrays import Typed, as_dtype, dtype_name, is_torch
from .._ops import function
from ._adapt import Call, NotOffered, refuse

Run = Callable[[Call], Any]


def as_f32(value: Any) -> Any:
    """Widened, as upstream's `.to(torch.float32)`; the same object when it is that already. 16-bit codes are bf16."""
    if is_torch(value):
        return value.float()
    if isinstance(value, np.ndarray) and value.dtype == np.uint16:
        return (value.astype(np.uint32) << 16).view(np.float32)
    return value.astype(np.float32, copy=False) if isinstance(value, np.ndarray) else value


def bare(value: Any) -> Any:
    return value.array if isinstance(value, Typed) else value


def like(value: Any, array: Any) -> Any:
    """`array` as codes of the type that `value` states, where it states one."""
    return as_dtype(array, value.dtype) if isinstance(value, Typed) else array


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


# ---- several functions ----


def lse_in_f32(call: Call) -> None:
    call["s_a"], call["s_b"] = as_f32(call["s_a"]), as_f32(call["s_b"])


def rows_of_16_bytes(name: str) -> Callable[[Call], None]:
    """The kernels load 16 bytes at a time."""

    def check(call: Call) -> None:
        row = bytes_of_a_row(call["input"])
        if row % 16:
            raise refuse(name, f"has rows of {row} bytes, expected a multiple of 16 bytes", argument="input", code="bad_shape")

    return check


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


# ---- whose order positional arguments have ----


def newer_where(kind: Callable[[Any], bool]) -> Callable[[tuple, Mapping[str, Any]], Optional[bool]]:
    """A newer version's, where the first argument that the versions have at different places is of this kind."""
    return lambda beyond, keywords: kind(beyond[0])


def a_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def newer_moe(beyond: tuple, keywords: Mapping[str, Any]) -> Optional[bool]:
    """Of trtllm's mixtures of experts: the rows of a tile, powers of two from 8 on or None, have gone, and the routing method has their place."""
    value = beyond[0]
    if value is None:
        return False
    if isinstance(value, (str, enum.Enum)):
        return True
    if len(beyond) > 1:
        return isinstance(beyond[1], bool)  # what follows the method; the method itself is a number
    if value == 8 and "routing_method_type" not in keywords:
        return None
    return value < 8 or value == 9


def newer_bf16_moe(beyond: tuple, keywords: Mapping[str, Any]) -> Optional[bool]:
    """A factor, or none, before the routing method."""
    return beyond[0] is None or isinstance(beyond[0], float) or "routing_method_type" in keywords


def newer_fp4_quantize(beyond: tuple, keywords: Mapping[str, Any]) -> Optional[bool]:
    """enable_pdl has no effect; False and None mean the same in either place."""
    if len(beyond) > 1 or beyond[0] in (None, False):
        return len(beyond) > 1
    return None


def newer_ragged(beyond: tuple, keywords: Mapping[str, Any]) -> Optional[bool]:
    """A threshold of skipped softmax, or none, before out and lse."""
    return a_number(beyond[0]) or len(beyond) > 2 or (beyond[0] is None and len(beyond) > 1 and getattr(bare(beyond[1]), "ndim", 0) == 3)


# ---- sgl_kernel ----


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


def rows(call: Call) -> None:
    """Leading dimensions as one; what cannot be viewed so is copied."""
    if getattr(call["input"], "ndim", 2) > 2:
        call["input"] = call["input"].reshape(-1, call["input"].shape[-1])


def one_row(*names: str) -> Callable[[Call], None]:
    """What has no dimension of rows is one row."""

    def hook(call: Call) -> None:
        for name in names:
            if getattr(bare(call[name]), "ndim", 0) == 1:
                call[name] = like(call[name], bare(call[name])[None])

    return hook


def rows_that_are_padded(call: Call) -> None:
    """Rows that are no multiple of four are copied into tensors that are, slices and scales with gaps between their columns (aligned for
    transfers by tiles) included. Others are read as if there were none: the op refuses them."""
    rows, scales = bare(call["mat_a"]), bare(call["scales_a"])
    if getattr(rows, "ndim", 0) != 2 or getattr(scales, "ndim", 0) != 2 or len(rows) % 4 == 0 or _last_stride(rows) != 1:
        return
    call["mat_a"], call["scales_a"] = like(call["mat_a"], _dense(rows)), like(call["scales_a"], _dense(scales.T).T)


def _last_stride(value: Any) -> int:
    return value.stride(-1) if is_torch(value) else value.strides[-1] // value.itemsize


def _dense(value: Any) -> Any:
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


def params(call: Call) -> None:
    """Upstream's dictionary of the grouped product."""
    wanted = ("ab_strides", "c_strides", "problem_sizes", "expert_offsets", "blockscale_offsets")
    given = call.pop("params")
    missing = [name for name in wanted if name not in given]
    if "expert_offsets" in missing:
        raise refuse("cutlass_fp4_group_mm", f"has no {', '.join(missing)}", argument="params", code="missing_argument")
    call.update({name: given[name] for name in wanted if name in given})


def stated_shape(call: Call) -> None:
    """The caller says how large the output is: rows of the map, columns of the input."""
    source, stated = bare(call["input_tensor"]), tuple(call.pop("output_tensor_shape"))
    made = (len(call["dst2src_map"]), *source.shape[1:])
    if stated != made:
        raise refuse("shuffle_rows", f"is {list(stated)}, expected {list(made)}", argument="output_tensor_shape", code="bad_shape")


def room_for_experts(run: Run, call: Call) -> Any:
    """Upstream allocates scales for the most tokens that an expert may have, whatever comes, and refuses more."""
    topk, expert_map = call["topk"], call["expert_map"]
    most = int(os.environ.get("MODELOPT_MAX_TOKENS_PER_EXPERT", 65536)) * topk
    used = (call["input_tensor"] if expert_map is None else expert_map).shape[0]
    if used > most:
        text = f"has {used} rows, at most {most} go with topk={topk} (MODELOPT_MAX_TOKENS_PER_EXPERT)"
        raise refuse("scaled_fp4_experts_quant", text, argument="input_tensor", code="bad_shape")
    output, scales = run(call)
    if scales.shape[0] >= most:
        return output, scales
    shape = (most, *scales.shape[1:])
    room = scales.new_empty(shape) if is_torch(scales) else np.empty(shape, scales.dtype)
    room[: scales.shape[0]] = scales
    return output, room


def thresholds(**kinds: str) -> Callable[[Call], None]:
    """Probabilities and logits as float32; thresholds, where each row has one, as the type given here, and 1 where there is none."""

    def convert(call: Call) -> None:
        for name in ("probs", "logits"):
            if name in call:
                call[name] = as_f32(call[name])
        for name, kind in kinds.items():
            value = bare(call[name])
            if value is None:
                call[name] = 1.0
            elif getattr(value, "shape", None):
                whole = value.int() if is_torch(value) else value.astype(np.int32, copy=False)
                call[name] = whole if kind == "int32" else as_f32(value)

    return convert


def as_signed(word: int) -> int:
    """The same 64 bits."""
    word &= 2**64 - 1
    return word - 2**64 if word >= 2**63 else word


def drawn(generator: str, **kinds: str) -> Callable[[Call], None]:
    """As thresholds, with the stream of a CUDA generator: its seed, and its offset before the call. Of any other generator the seed alone.
    The generator is not advanced."""
    convert = thresholds(**kinds)

    def read(call: Call) -> None:
        convert(call)
        if call.get("check_nan") and bool((call["probs"] != call["probs"]).any()):
            raise refuse("sampling", "Input probs contains NaN.", argument="probs")
        given = call[generator]
        if given is not None:
            call["philox_seed"] = as_signed(given.initial_seed())
            if getattr(given.device, "type", "") == "cuda":
                call["philox_offset"] = given.get_offset()

    return read


def threshold_a_row(name: str, **kinds: str) -> Callable[[Call], None]:
    """FlashInfer's thresholds are numbers, or one for each row; the beginnings of its refusals are looked for by its callers."""

    def check(call: Call) -> None:
        rows = len(bare(call["probs"] if "probs" in call else call["logits"]))
        for threshold in kinds:
            shape = getattr(bare(call[threshold]), "shape", None)
            if shape is None or isinstance(call[threshold], np.generic):
                continue
            if len(shape) == 0:
                text = "Expected a 1D tensor of shape (batch_size,) or scalar, got a 0-dimensional tensor"
            elif len(shape) > 1:
                text = f"Expected a 1D tensor or scalar, got a {len(shape)}D tensor"
            elif call.get("indices") is None and shape[0] != rows:
                text = f"Sampling parameter tensor batch size mismatch: {shape[0]} thresholds, expected {rows}"
            else:
                continue
            raise refuse(name, f"{threshold}: {text}", code="bad_shape")

    return check


def type_kept(name: str, argument: str, **kinds: str) -> Callable[[Run, Call], Any]:
    """Of 16-bit numbers what is computed in float32 is rounded back."""
    check, convert = threshold_a_row(name, **kinds), thresholds(**kinds)

    def around(run: Run, call: Call) -> Any:
        check(call)
        given = bare(call[argument])
        convert(call)
        result = run(call)
        if is_torch(given):
            return result.to(given.dtype)
        return result.astype(given.dtype) if given.dtype.kind != "u" else result  # codes in integers say no type

    return around


def seeded(name: str, **kinds: str) -> Callable[[Run, Call], Any]:
    """As drawn, with the stream's seed and offset said instead, where they are; samples have the type of the numbers of the rows."""
    check, convert = threshold_a_row(name, **kinds), drawn("generator", **kinds)

    def around(run: Run, call: Call) -> Any:
        check(call)
        convert(call)
        if (call["seed"] is None) != (call["offset"] is None):
            missing, there = ("seed", "offset") if call["seed"] is None else ("offset", "seed")
            raise refuse(name, f"is none where {there} is given", argument=missing, code="missing_argument")
        for part in ("seed", "offset"):
            value = bare(call[part])
            if value is None:
                continue
            if int(np.prod(getattr(value, "shape", ()))) != 1:
                text = f"has shape {list(value.shape)}, offered is one element: a stream for each row is not"
                raise refuse(name, text, kind=NotOffered, code="unsupported", argument=part)
            call[f"philox_{part}"] = as_signed(int(value if isinstance(value, int) else value.reshape(-1)[0]))
        rows = bare(call["indices"])
        if rows is None or dtype_name(rows.dtype) != "i64":
            return run(call)
        samples = run({**call, "indices": rows.int() if is_torch(rows) else rows.astype(np.int32)})
        return samples.long() if is_torch(samples) else samples.astype(np.int64)

    return around


def each_or_one(*names: str, then: Callable[[Call], None] | None = None) -> Callable[[Call], None]:
    """Of the operators: a tensor with a threshold for each row, or a number for all."""

    def choose(call: Call) -> None:
        for name in names:
            each, one = call[f"maybe_{name}_arr"], call[f"{name}_val"]
            call[name] = each if each is not None else int(one) if name == "top_k" else one
        if then is not None:
            then(call)

    return choose


def drawn_jointly(call: Call) -> None:
    """The operator is the kernel of the joint order."""
    drawn("gen")(call)
    call["filter_apply_order"] = "joint"


def softmax(logits: Any) -> Any:
    """Of each row, as torch has it; in NumPy where the array is NumPy's."""
    logits = as_f32(bare(logits))
    if is_torch(logits):
        return logits.softmax(-1)
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def from_logits(function: Callable[[str], Callable[..., Any]]) -> Callable[..., Any]:
    """Upstream's composition of a package's functions."""

    def top_k_top_p_sampling_from_logits(
        logits: Any,
        top_k: Any,
        top_p: Any,
        indices: Any = None,
        filter_apply_order: str = "top_k_first",
        deterministic: bool = True,
        generator: Any = None,
        check_nan: bool = False,
        **how: Any,
    ) -> Any:
        """A mask and top_p_sampling_from_probs, or top_k_top_p_sampling_from_probs jointly; `how` as those have it."""
        drawn_as = {"deterministic": deterministic, "generator": generator, "check_nan": check_nan, **how}
        if filter_apply_order == "joint":
            return function("top_k_top_p_sampling_from_probs")(softmax(logits), top_k, top_p, indices, "joint", **drawn_as)
        if filter_apply_order != "top_k_first":
            text = f"is {filter_apply_order!r}, expected 'top_k_first' or 'joint'"
            raise refuse("top_k_top_p_sampling_from_logits", text, argument="filter_apply_order")
        return function("top_p_sampling_from_probs")(softmax(function("top_k_mask_logits")(logits, top_k)), top_p, indices, **drawn_as)

    return top_k_top_p_sampling_from_logits


def stacked(parts: list) -> Any:
    if not is_torch(parts[0]):
        return np.stack(parts)
    import torch

    return torch.stack(parts)


def views_of_groups(run: Run, call: Call) -> Any:
    """Groups come last in what upstream returns: codes [m, k/2, l], scales [32, 4, m/128, 4, k/64, l]."""
    output, scales = run(call)
    groups, rows, columns = scales.shape
    tiles = scales.reshape(groups, rows // 128, columns // 4, 32, 4, 4)
    if is_torch(output):
        return output.permute(1, 2, 0), tiles.permute(3, 4, 1, 5, 2, 0)
    return output.transpose(1, 2, 0), tiles.transpose(3, 4, 1, 5, 2, 0)


def closed_up(value: Any) -> Any:
    """Without what lies between its rows: kernels take strides of pages and rows, whose elements must be neighbours."""
    array = bare(value)
    if not is_torch(array) and not isinstance(array, np.ndarray) or not array.ndim:
        return value
    unit = 1 if is_torch(array) else array.itemsize
    if (array.stride() if is_torch(array) else array.strides)[-1] != unit:
        return value
    return like(value, array.contiguous() if is_torch(array) else np.ascontiguousarray(array))


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


def as_list(run: Run, call: Call) -> Any:
    """The operator's Tensor[]."""
    return list(run(call))


def lists_of_pools(source: str, target: str, *, alike: bool = False) -> Callable[[Run, Call], Any]:
    """Upstream's lists of pools are copied pool by pool, `alike` ones one to one. Two pools that hold all layers are K's and V's; the layers of
    K come first."""

    def around(run: Run, call: Call) -> Any:
        sources, targets = call[source], call[target]
        if not isinstance(sources, (list, tuple)):
            return run(call)
        if not sources or not targets:
            raise refuse("transfer_kv", "is empty, expected pools", argument=source if targets else target, code="bad_shape")
        # A list of pools with all layers may be shorter than the list of the single layers.
        few, many = sorted((sources, targets), key=len)
        if len(many) % len(few) or (alike and len(many) != len(few)):
            text = f"has {len(sources)} pools for {len(targets)}, expected {'as many' if alike else 'multiples of each other'}"
            raise refuse("transfer_kv", text, argument=source, code="bad_shape")
        for name, pools in ((source, sources), (target, targets)):  # one that does not fit would be found behind others that are written
            if len(kinds := list(dict.fromkeys(map(kind_of, pools)))) > 1:
                text = f"has a pool of {kinds[1]} beside one of {kinds[0]}"
                raise refuse("transfer_kv", text, argument=name, code="bad_shape")
        layers = len(many) // len(few)
        for i in range(len(many)):
            parts = {}
            for name, pools in ((source, sources), (target, targets)):
                whole = pools is few and few[0].ndim > many[0].ndim
                pool = pools[i // layers] if pools is few else pools[i]
                layer = i % layers
                parts[name] = (pool[:, layer : layer + 1] if whole and "layer_id" not in call else pool)[None]
            step = {"layer_id": call["layer_id"] + i % layers} if "layer_id" in call else {}
            run({**call, **parts, **step})
        return None

    return around


def kind_of(pool: Any) -> str:
    pool = bare(pool)
    return f"{pool.dtype} {list(pool.shape)}" if hasattr(pool, "shape") else repr(pool)


def tables_of_layers(name: str, *tables: str, layer_of: Optional[Mapping[str, int]] = None) -> Callable[[Run, Call], Any]:
    """A table of addresses, one a layer, is copied layer by layer. An address says where a layer begins and not where it ends: it is taken to end
    behind the last slot that its indices name. `layer_of` gives the dimension of the layers in pools that hold all of them."""
    wholes = layer_of or {}

    def around(run: Run, call: Call) -> Any:
        given = [table for table in tables if is_addresses(call[table])]
        if not given:
            return run(call)
        if len(given) < len(tables):
            other = next(table for table in tables if table not in given)
            raise refuse(name, f"is no table of addresses (uint64 [num_layers]), which {given[0]} is", argument=other, code="bad_dtype")
        layers, item = int(call["num_layers"]), int(call["item_size"])
        if item < 1:
            raise refuse(name, f"is {item}, expected the bytes of an item: a table of addresses does not say them", argument="item_size")
        for table in tables:
            if len(call[table]) != layers:
                raise refuse(name, f"has {len(call[table])} addresses, expected num_layers = {layers}", argument=table, code="bad_shape")
        pools = {pool: bare(bytes_as(bare(call[pool]), "u8")) for pool in wholes}
        for pool, dimension in wholes.items():
            if pools[pool].ndim <= dimension or pools[pool].shape[dimension] != layers:
                text = f"has shape {list(call[pool].shape)}, expected num_layers = {layers} in dimension {dimension}"
                raise refuse(name, text, argument=pool, code="bad_shape")
            stated, slot = int(call.get("dst_layout_dim", 0)), item * layers
            if stated and stated != slot:
                raise refuse(name, f"is {stated}, expected item_size times num_layers = {slot}", argument="dst_layout_dim")
        addresses = {table: [int(address) for address in call[table]] for table in tables}
        slots = {side: slots_named(call[f"{side}_indices"]) for side in ("src", "dst")}
        for layer in range(layers):
            step = {**call, "num_layers": 1}
            for table in tables:
                step[table] = memory_at(addresses[table][layer], slots[table[:3]], item)[None]
            for pool, dimension in wholes.items():
                step[pool] = pools[pool][(slice(None),) * dimension + (slice(layer, layer + 1),)]
            if "dst_layout_dim" in call:
                step["dst_layout_dim"] = 0
            run(step)
        return None

    return around


def is_addresses(value: Any) -> bool:
    value = bare(value)
    return getattr(value, "ndim", 0) == 1 and str(value.dtype).rpartition(".")[2] == "uint64"


def slots_named(indices: Any) -> int:
    """How many slots there must be for these indices. Those below zero are the op's to refuse."""
    return max((int(bare(indices).max()) if len(indices) else -1) + 1, 1)


def memory_at(address: int, rows: int, row: int) -> np.ndarray:
    return np.ctypeslib.as_array((ctypes.c_uint8 * (rows * row)).from_address(address)).reshape(rows, row)


def tree_as_callers_have_it(call: Call) -> None:
    """Rows of more than eight bits are words; of one step there are no parents."""
    mask = call["tree_mask"]
    if call["tree_mask_mode"] == 2 and bare(mask).dtype.itemsize > 1:
        call["tree_mask"] = bytes_as(bare(mask), "u8")
    if call["depth"] == 1:  # no parents are read, and upstream has none
        parents = bare(call["selected_index"])
        call["parent_list"] = parents.new_zeros((len(parents), 1)) if is_torch(parents) else np.zeros((len(parents), 1), np.int64)


def indptr_of_the_batch(call: Call) -> None:
    """There may be more offsets than are read."""
    for name in ("input_indptr", "output_indptr"):
        call[name] = call[name][: call["batch_size"] + 1]


def largest_along(run: Run, call: Call) -> Any:
    """Any dimension, as torch has it."""
    values, dim = call["values"], call["dim"]
    rank = bare(values).ndim
    if dim in (-1, rank - 1):
        return run(call)
    call["values"], call["dim"] = like(values, bare(values).swapaxes(dim, -1)), -1
    return tuple(like(found, bare(found).swapaxes(dim, -1)) for found in run(call))


def same_memory(run: Run, call: Call) -> Any:
    """A tensor of any type and rank over the same memory; what is no tensor comes back as it is."""
    value = call["tensor"]
    return value[...] if is_torch(value) or isinstance(value, np.ndarray) else value


# ---- sgl_kernel's operators ----


def separate_outputs(call: Call) -> None:
    """The operator of the rotation reads q and k and writes q_rope and k_rope, which need not be the same memory."""
    for source, output in (("q", "q_rope"), ("k", "k_rope")):
        if call[source].data_ptr() != call[output].data_ptr():
            call[output].copy_(call[source])
    call["head_size"], call["is_neox"] = call["q"].shape[-1], not call["interleave"]
    for taken in ("q", "k", "interleave"):
        del call[taken]


QSERVE = ("in_feats", "kernel", "wscales", "ascales", "w_szs", "a_ssums", "zeros", "scales_i8", "out_feats")
without_underscores = {f"_{name}": name for name in QSERVE}


def version_2(call: Call) -> None:
    call["enable_v2"] = True


def words_of_scales(call: Call) -> None:
    call["output_scale"] = bytes_as(call["output_scale"], "f8_e4m3")


def words_of_experts_scales(run: Run, call: Call) -> None:
    output, words = call.pop("output"), call.pop("output_scale")
    codes, scales = run(call)
    output.copy_(codes)
    bytes_as(words, "u8")[: scales.shape[0]] = bytes_as(scales, "u8")


# ---- flashinfer ----


def scales_as_numbers(name: str) -> Callable[[Call], None]:
    """Scales may be tensors of one element."""

    def read(call: Call) -> None:
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


def pages_or_tokens(run: Run, call: Call) -> Any:
    """With sparse_mla_top_k the tables list tokens, query by query, which is another kernel."""
    name = "trtllm_batch_decode_with_kv_cache_mla"
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


def joined_rows(parts: tuple, inner: int) -> Any:
    """All dimensions but the last `inner` ones as one, of one request after another."""
    rows = [bare(part).reshape(-1, *bare(part).shape[-inner:]) for part in parts]
    if not is_torch(rows[0]):
        return np.concatenate(rows)
    import torch

    return torch.cat(rows)


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
    """Keys may have heads, [T, H, D]: they are then rotated and quantized as queries are, with the keys' scale."""
    types_of_outputs(call)
    k_rope, k_nope = call["k_rope"], call["k_nope"]
    if k_rope.ndim == 2:
        return run(call)
    given = (call["k_rope_out"], call["k_nope_out"])
    first = {"k_rope": k_rope[:, 0], "k_nope": k_nope[:, 0], "k_rope_out": None, "k_nope_out": None}
    q_rope_out, _, q_nope_out, _ = run({**call, **first})
    keys = {"q_rope": k_rope, "q_nope": k_nope, "q_rope_out": given[0], "q_nope_out": given[1], "quant_scale_q": call["quant_scale_kv"]}
    k_rope_out, _, k_nope_out, _ = run({**call, **first, **keys})
    return q_rope_out, k_rope_out, q_nope_out, k_nope_out


def layout_by_name(call: Call, function: str, argument: str) -> None:
    """A layout of scales by its name in SfLayout."""
    given = call.pop(argument)
    layout = str(getattr(given, "name", given)).rpartition(".")[2]
    if layout not in ("layout_128x4", "layout_8x4", "layout_linear"):
        raise refuse(function, f"is {given!r}, expected one of SfLayout", argument=argument)
    call["is_sf_swizzled_layout"], call["is_sf_8x4_layout"] = layout != "layout_linear", layout == "layout_8x4"


def flat_scales(run: Run, call: Call) -> Any:
    """Scales come as bytes in a row. Of f32, which the host quantizes, so do codes, and no columns are filled up."""
    if call["sf_swizzle_layout"] is not None:
        layout_by_name(call, "mxfp8_quantize", "sf_swizzle_layout")
    on_host = str(getattr(bare(call["input"]), "dtype", None)).endswith("float32")
    codes, scales = run({**call, "alignment": 32} if on_host else call)
    return bytes_as(codes, "u8") if on_host and is_torch(codes) else codes, bare(bytes_as(scales, "u8")).reshape(-1)


def scales_by_blocks(run: Run, call: Call) -> Any:
    """Scales come as bytes, in rows as long as there are blocks where that comes out even."""
    codes, scales = run(call)
    scales, blocks = bare(bytes_as(scales, "u8")), call["a"].shape[-1] // (32 if "a_global_sf" not in call else 16)
    return codes, scales.reshape(-1, blocks) if blocks and int(np.prod(scales.shape)) % blocks == 0 else scales


def named_layout(run: Run, call: Call) -> Any:
    layout_by_name(call, "nvfp4_quantize", "sfLayout")
    call["a_global_sf"] = as_f32(call["a_global_sf"])
    return scales_by_blocks(run, call)


ROUTING_METHODS = ("Default", "Renormalize", "DeepSeekV3", "Llama4", "RenormalizeNaive", "TopK", "SigmoidRenorm", "MiniMax2", "Sigmoid", "TopKSigmoid")
WEIGHT_LAYOUTS = {"WeightLayout.MajorK": 0, "WeightLayout.MajorMn": 1, "WeightLayout.BlockMajorK": 2}


def moe_by_number(call: Call) -> None:
    """Upstream numbers methods and layouts; its default layout is known here by name. What is None is left out."""
    method = call["routing_method_type"]
    if not isinstance(method, str):
        call["routing_method_type"] = ROUTING_METHODS[method] if 0 <= method < len(ROUTING_METHODS) else str(method)
    if "weight_layout" in call and not isinstance(call["weight_layout"], int):
        call["weight_layout"] = WEIGHT_LAYOUTS[repr(call["weight_layout"])]
    for name in ("n_group", "topk_group", "routed_scaling_factor", "tile_tokens_dim", "num_fused_shared_experts"):
        if name in call and call[name] is None:
            del call[name]


def moe_with_transposed_scales(call: Call) -> None:
    """Upstream's own tests hand over the scales' transposed view, of which the kernel takes the pointer."""
    as_it_lies("hidden_states_scale")(call)
    moe_by_number(call)


def moe_in_a_list(run: Run, call: Call) -> Any:
    """Upstream hands its outputs back in a list, however many there are."""
    moe_by_number(call)
    result = run(call)
    return list(result) if type(result) is tuple else [result]


# What cutlass_fused_moe's list of scales holds, by its length; of fp8 the last one is LoRA's alone.
QUANT_SCALES = {
    2: ("fc1_weight_scale", "fc2_weight_scale"),
    4: ("fc1_dequant", "fc2_act_scale", "fc2_dequant"),
    6: ("fc1_act_scale", "fc1_weight_scale", "fc1_dequant", "fc2_act_scale", "fc2_weight_scale", "fc2_dequant"),
}


def words_as_bytes(value: Any, name: str) -> Any:
    """Integers that hold codes, whatever their size; codes that say their type stay."""
    integers = value is not None and dtype_name(bare(value).dtype) in ("i32", "i64", "u8")
    return bytes_as(bare(value), name) if integers and not isinstance(value, Typed) else value


def cutlass_moe(run: Run, call: Call) -> list:
    """Scales come in a list, weights of NVFP4 in words of sixteen codes, their scales in words of four. Upstream returns a list whose first
    element is the output; what follows it there is memory of min_latency_mode, never written."""
    name = "cutlass_fused_moe"
    activation, scales = call.pop("activation_type"), call.pop("quant_scales") or []
    if repr(activation) != "ActivationType.Swiglu" and activation != 3:
        raise refuse(name, f"is {activation!r}, offered is Swiglu (3)", kind=NotOffered, code="unsupported", argument="activation_type")
    if len(scales) not in (0, *QUANT_SCALES):
        raise refuse(name, f"has {len(scales)} tensors, expected none, 2 (fp8 of blocks), 4 (fp8) or 6 (NVFP4)", argument="quant_scales")
    given = dict(zip(QUANT_SCALES.get(len(scales), ()), scales))
    for scale in ("fc1_act_scale", "fc2_act_scale"):
        if scale in given:
            given[scale] = given[scale].reshape(-1)
    if len(scales) == 6:
        for weights in ("fc1", "fc2"):
            call[f"{weights}_expert_weights"] = words_as_bytes(call[f"{weights}_expert_weights"], "u8")
            given[f"{weights}_weight_scale"] = words_as_bytes(given[f"{weights}_weight_scale"], "f8_e4m3")
        if call["input_sf"] is not None:
            del given["fc1_act_scale"]  # the input is quantized
            blocks = -(-bare(call["fc2_expert_weights"]).shape[1] // 64) * 4
            call["input"] = words_as_bytes(call["input"], "u8")
            call["input_sf"] = bare(words_as_bytes(call["input_sf"], "f8_e4m3"))
            call["input_sf"] = as_dtype(call["input_sf"].reshape(-1, blocks), "f8_e4m3")
    call.update(given)
    result = run(call)
    return [result[0] if type(result) is tuple else result]


def scales_in_tiles(call: Call) -> None:
    """Quantizers shape scales by blocks of a row; what tiles fill up with is there all the same."""
    across = -(-(bare(call["a"]).shape[1] * 2 // call["block_size"]) // 4) * 4
    a_scales, b_scales = bare(call["a_descale"]), bare(call["b_descale"])
    call["a_descale"] = like(call["a_descale"], a_scales.reshape(-1, across))
    call["b_descale"] = like(call["b_descale"], b_scales.swapaxes(0, 1).reshape(-1, across).swapaxes(0, 1))


def fp4_rows(run: Run, call: Call) -> Any:
    """Any leading dimensions, columns first too; scales come as bytes, in rows as long as there are blocks."""
    value = call["input"]
    if getattr(value, "ndim", 2) < 2:
        raise refuse("fp4_quantize", f"has shape {list(value.shape)}, expected [..., M, K]", argument="input", code="bad_shape")
    strides = value.stride() if is_torch(value) else tuple(stride // value.itemsize for stride in value.strides)
    turned = strides[-2] == 1
    value = value.swapaxes(-2, -1) if turned else value
    *lead, columns = value.shape
    size, rows = call["sf_vec_size"], int(np.prod(lead))
    blocks, tile = columns // size, 8 if call["is_sf_8x4_layout"] else 128
    padded = -(-blocks // 4) * 4 * -(-rows // tile) * tile if call["is_sf_swizzled_layout"] else blocks * rows
    if columns % size or padded % max(blocks, 1):
        text = f"has rows of {columns}, expected a multiple of 16 whose {blocks} blocks divide the {padded} scales that there are with padding"
        raise refuse("fp4_quantize", text, argument="input", code="bad_shape")
    call["input"] = value.reshape(-1, columns)
    if call["global_scale"] is None and not call["sf_use_ue8m0"]:
        call["global_scale"] = as_f32(value.new_ones(1)) if is_torch(value) else np.ones(1, np.float32)
    codes, scales = run(call)
    scales = bare(bytes_as(scales, "u8")).reshape(-1, max(blocks, 1))
    codes = codes.reshape(*lead, columns // 2)
    return (codes.swapaxes(-2, -1), scales.swapaxes(-2, -1)) if turned else (codes, scales)
