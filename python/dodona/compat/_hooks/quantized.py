"""Quantizers and products of quantized numbers."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from ..._arrays import is_torch
from ..._ops import function
from .._adapt import Call, NotOffered, refuse
from .._layouts import as_given, codes_of, get_shuffle_matrix_a_row_indices, scales_of
from .arrays import Run, as_f32, bare, bytes_as, dense, joined, last_stride, like, not_writable, with_zeros_behind


def rows(call: Call) -> None:
    """Leading dimensions as one; what cannot be viewed so is copied."""
    if getattr(call["input"], "ndim", 2) > 2:
        call["input"] = call["input"].reshape(-1, call["input"].shape[-1])


def rows_of_a_layout(run: Run, call: Call) -> Any:
    """vLLM's newer arguments: scales row by row instead of tiles, and zeros behind rows, padded_n numbers in all, which have scales too."""
    name, in_tiles = "scaled_fp4_quant", call.pop("is_sf_swizzled_layout")
    backend, padded = call.pop("backend"), call.pop("padded_n")
    rows(call)
    count, columns = bare(call["input"]).shape
    if "trtllm" in str(backend) and count <= 32:
        raise refuse(name, f"is {backend!r} with {count} rows, whose scales lie in tiles of 8 x 4, offered are those of 128 x 4", kind=NotOffered, code="unsupported", argument="backend")
    if padded is not None:
        if isinstance(padded, bool) or not isinstance(padded, (int, np.integer)) or padded < columns or padded % 16:
            raise refuse(name, f"is {padded!r}, expected a multiple of 16 from {columns} on", argument="padded_n")
        call["input"] = like(call["input"], with_zeros_behind(bare(call["input"]), int(padded) - columns))
    codes, scales = run(call)
    if in_tiles:
        return codes, scales
    of_rows = np.ascontiguousarray(scales_of(codes_of(scales), count, bare(call["input"]).shape[1] // 16, 128))
    return codes, bytes_as(as_given(of_rows, bare(codes)), "f8_e4m3")


def rows_that_are_padded(call: Call) -> None:
    """Rows that are no multiple of four are copied into tensors that are, slices and scales with gaps between their columns (aligned for
    transfers by tiles) included. Others are read as if there were none: the op refuses them."""
    rows, scales = bare(call["mat_a"]), bare(call["scales_a"])
    if getattr(rows, "ndim", 0) != 2 or getattr(scales, "ndim", 0) != 2 or len(rows) % 4 == 0 or last_stride(rows) != 1:
        return
    call["mat_a"], call["scales_a"] = like(call["mat_a"], dense(rows)), like(call["scales_a"], dense(scales.T).T)


def one_scale_of_all_rows(call: Call) -> None:
    """Newer versions take one scale for all rows."""
    scales, rows = bare(call["scales_a"]), bare(call["mat_a"])
    count = int(np.prod(tuple(getattr(scales, "shape", ()))))
    if not hasattr(scales, "shape") or len(getattr(rows, "shape", ())) != 2:
        return
    if count not in (1, rows.shape[0]):
        text = f"must contain either one scale or one of each row: has shape {list(scales.shape)}, mat_a {list(rows.shape)}"
        raise refuse("fp8_scaled_mm", text, argument="scales_a", code="bad_shape")
    if count == 1 and rows.shape[0] > 1:
        one = scales.reshape(-1)
        call["scales_a"] = like(call["scales_a"], one.repeat(rows.shape[0]) if is_torch(one) else np.repeat(one, rows.shape[0]))


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


def views_of_groups(run: Run, call: Call) -> Any:
    """Groups come last in what upstream returns: codes [m, k/2, l], scales [32, 4, m/128, 4, k/64, l]."""
    output, scales = run(call)
    groups, rows, columns = scales.shape
    tiles = scales.reshape(groups, rows // 128, columns // 4, 32, 4, 4)
    if is_torch(output):
        return output.permute(1, 2, 0), tiles.permute(3, 4, 1, 5, 2, 0)
    return output.transpose(1, 2, 0), tiles.transpose(3, 4, 1, 5, 2, 0)


QSERVE = ("in_feats", "kernel", "wscales", "ascales", "w_szs", "a_ssums", "zeros", "scales_i8", "out_feats")
without_underscores = {f"_{name}": name for name in QSERVE}


def words_of_scales(call: Call) -> None:
    call["output_scale"] = bytes_as(call["output_scale"], "f8_e4m3")


def words_of_experts_scales(run: Run, call: Call) -> None:
    name, output, words = "scaled_fp4_experts_quant", call.pop("output"), bytes_as(call.pop("output_scale"), "u8")
    codes, scales = run(call)
    for argument, target, rows, columns in (("output", output, *codes.shape), ("output_scale", words, *scales.shape)):
        enough = target.shape[0] == rows if argument == "output" else target.shape[0] >= rows
        if target.ndim != 2 or target.element_size() != 1 or not enough or target.shape[1] != columns:
            text = f"is {target.dtype} {list(target.shape)}, expected {rows} rows of {columns} bytes"
            raise refuse(name, text, argument=argument, code="bad_shape")
        if reason := not_writable(target):
            raise refuse(name, f"{reason}, and is written", argument=argument)
    output.copy_(codes)
    words[: scales.shape[0]] = bytes_as(scales, "u8")


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
    """Scales come as bytes, in rows as long as there are blocks, those of tiles filled up to four. What a row is multiplied with stands behind them."""
    codes, scales, *rows = run(call)
    scales, blocks = bare(bytes_as(scales, "u8")), call["a"].shape[-1] // (32 if "a_global_sf" not in call else 16)
    across = with_padding(blocks) if call["is_sf_swizzled_layout"] else blocks
    return codes, scales.reshape(-1, across) if across else scales, *rows


def named_layout_of_powers(run: Run, call: Call) -> Any:
    layout_by_name(call, "mxfp4_quantize", "sfLayout")
    return scales_by_blocks(run, call)


# Where it is 1, upstream compiles kernels that divide where the usual ones multiply by approximate reciprocals.
OTHER_KERNELS = "FLASHINFER_DISABLE_FP4_QUANT_FAST_MATH"


def named_layout(run: Run, call: Call) -> Any:
    layout_by_name(call, "nvfp4_quantize", "sfLayout")
    if call.get("per_token_activation") and os.environ.get(OTHER_KERNELS, "0") == "1":
        text = f"is True with {OTHER_KERNELS}=1, offered are the kernels without it, whose scales of rows are other ones"
        raise refuse("nvfp4_quantize", text, kind=NotOffered, code="unsupported", argument="per_token_activation")
    scale = call["a_global_sf"]
    if isinstance(scale, (int, float)) and not isinstance(scale, bool):  # as upstream takes it with per_token_activation
        scale = as_given(np.array([scale], np.float32), bare(call["a"]))
    call["a_global_sf"] = as_f32(scale)
    return scales_by_blocks(run, call)


def scales_in_tiles(call: Call) -> None:
    """Quantizers shape scales by blocks of a row; what tiles fill up with is there all the same."""
    across = -(-(bare(call["a"]).shape[1] * 2 // call["block_size"]) // 4) * 4
    a_scales, b_scales = bare(call["a_descale"]), bare(call["b_descale"])
    call["a_descale"] = like(call["a_descale"], a_scales.reshape(-1, across))
    call["b_descale"] = like(call["b_descale"], b_scales.swapaxes(0, 1).reshape(-1, across).swapaxes(0, 1))


def fp4_product(call: Call) -> None:
    """With the trtllm backend the rows of b^T, and their scales, come in shuffle_matrix_a's order."""
    backend = call.pop("backend")
    name, kind = "mm_fp4", str(call["out_dtype"]).rpartition(".")[2]
    if backend == "trtllm" and (not call["use_nvfp4"] or kind not in ("bf16", "bfloat16")):
        text = f"is trtllm with use_nvfp4={call['use_nvfp4']} and out_dtype={call['out_dtype']}, expected NVFP4 and bfloat16"
        raise refuse(name, text, argument="backend")
    if backend == "cute-dsl" and (call["use_8x4_sf_layout"] or bare(call["b"]).shape[1] % 8):
        raise refuse(name, "is cute-dsl, which requires N % 8 == 0 and the 128x4 scale factor layout", argument="backend")
    if backend == "trtllm":
        rows = bare(call["b"]).swapaxes(0, 1)
        count, blocks = rows.shape[0], rows.shape[1] * 2 // call["block_size"]
        order = np.argsort(np.asarray(get_shuffle_matrix_a_row_indices(rows, 128)))
        call["b"] = like(call["b"], dense(rows[as_given(order, rows)]).swapaxes(0, 1))
        tiles = codes_of(dense(bare(call["b_descale"]).swapaxes(0, 1)))
        if tiles.size != -(-count // 128) * 128 * with_padding(blocks):
            raise refuse(name, f"has shape {list(bare(call['b_descale']).shape)}, expected {blocks} scales of {count} rows in tiles of 128 x 4", argument="b_descale", code="bad_shape")
        lying = function("nvfp4_block_scale_interleave")(np.ascontiguousarray(scales_of(tiles, count, blocks, 128)[order]))
        turned = as_given(codes_of(lying).reshape(-1, with_padding(blocks)), rows).swapaxes(0, 1)
        call["b_descale"] = turned if is_torch(turned) else like(call["b_descale"], turned.view(bare(call["b_descale"]).dtype))
    scales_in_tiles(call)


def with_padding(blocks: int) -> int:
    """Columns of scales in tiles."""
    return -(-blocks // 4) * 4


def run_once(run: Run, call: Call) -> Any:
    return run(call)


def _is_scale_of_rows(call: Call) -> bool:
    """A global scale for each row, of more rows than one."""
    count, rows = int(np.prod(tuple(getattr(bare(call["global_scale"]), "shape", ())))), call["input"].shape[0]
    if count > 1 and count != rows:
        raise refuse("fp4_quantize", f"has {count} numbers, expected 1 or one for each of {rows} rows", argument="global_scale", code="bad_shape")
    return count > 1


def _row_by_row(run: Run, call: Call) -> Any:
    """A block's codes and scale hang of its row's global scale alone: rows one after another, and their scales put in tiles where those are asked for."""
    tiles, name = call["is_sf_swizzled_layout"], "fp4_quantize"
    if call["is_sf_8x4_layout"]:
        raise refuse(name, "is True beside scales of rows, offered is False", kind=NotOffered, code="unsupported", argument="is_sf_8x4_layout")
    scales = bare(call["global_scale"]).reshape(-1)
    made = [run({**call, "input": call["input"][at : at + 1], "global_scale": scales[at : at + 1], "is_sf_swizzled_layout": False}) for at in range(len(scales))]
    codes, of_rows = (joined([bare(bytes_as(bare(part[i]), "u8")) for part in made], 0) for i in (0, 1))
    return codes, function("nvfp4_block_scale_interleave")(of_rows) if tiles else of_rows


def fp4_rows(run: Run, call: Call) -> Any:
    """Any leading dimensions, columns first too; scales come as bytes, in rows as long as there are blocks, those of tiles filled up to four."""
    value = call["input"]
    if getattr(value, "ndim", 2) < 2:
        raise refuse("fp4_quantize", f"has shape {list(value.shape)}, expected [..., M, K]", argument="input", code="bad_shape")
    strides = value.stride() if is_torch(value) else tuple(stride // value.itemsize for stride in value.strides)
    turned = strides[-2] == 1
    value = value.swapaxes(-2, -1) if turned else value
    *lead, columns = value.shape
    size = call["sf_vec_size"]
    blocks = columns // size
    if columns % size:
        raise refuse("fp4_quantize", f"has rows of {columns}, expected a multiple of {size}", argument="input", code="bad_shape")
    call["input"] = value.reshape(-1, columns)
    if call["global_scale"] is None and not call["sf_use_ue8m0"]:
        call["global_scale"] = as_f32(value.new_ones(1)) if is_torch(value) else np.ones(1, np.float32)
    codes, scales = (_row_by_row if _is_scale_of_rows(call) else run_once)(run, call)
    scales = bare(bytes_as(scales, "u8")).reshape(-1, max(with_padding(blocks) if call["is_sf_swizzled_layout"] else blocks, 1))
    codes = codes.reshape(*lead, columns // 2)
    return (codes.swapaxes(-2, -1), scales.swapaxes(-2, -1)) if turned else (codes, scales)
