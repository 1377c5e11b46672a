"""Whole mixtures of experts."""

from __future__ import annotations

from typing import Any, Callable, Iterable, Optional

import numpy as np

from ..._arrays import as_dtype, dtype_name, is_torch
from ..._ops import function
from .._adapt import Call, NotOffered, refuse
from .arrays import Run, as_it_lies, bare, bytes_as, words_as_bytes

ROUTING_METHODS = ("Default", "Renormalize", "DeepSeekV3", "Llama4", "RenormalizeNaive", "TopK", "SigmoidRenorm", "MiniMax2", "Sigmoid", "TopKSigmoid")
WEIGHT_LAYOUTS = {"WeightLayout.MajorK": 0, "WeightLayout.MajorMn": 1, "WeightLayout.BlockMajorK": 2}


# What upstream's activations are here, by upstream's number: the curve, whether up multiplies it, what a limit bounds.
ACTIVATIONS = {
    "Gelu": ("gelu", False), "Relu": ("relu", False), "Silu": ("silu", False), "Swiglu": ("silu", True), "Geglu": ("gelu", True), "SwigluBias": ("silu", True),
    "Relu2": ("relu2", False), "SwigluStep": ("silu", True), "GegluTanh": ("gelu_tanh", True), "Identity": ("identity", False), "Situ": None,
}  # fmt: skip
TRTLLM_ACTIVATIONS = ("Swiglu", "Geglu", "Relu2", "Identity")


def activation(name: str, call: Call, offered: Iterable[str] = ACTIVATIONS) -> str:
    """Takes activation_type, or gated_act_type of older versions, gives gate_activation and gated, and upstream's word for it."""
    value = call.pop("activation_type", 3)
    argument, found = "activation_type", repr(value).removesuffix(".value").rpartition(".")[2]  # a default is known by its name alone
    if isinstance(value, int):
        found = list(ACTIVATIONS)[value] if 0 <= value < len(ACTIVATIONS) else str(int(value))
    gate = call.pop("gated_act_type", 0)
    if not (gate == 0 or repr(gate).endswith("SwiGlu")):
        argument, value, found = "gated_act_type", gate, "Geglu" if gate == 1 or repr(gate).endswith("GeGlu") else str(gate)
    if found not in offered or ACTIVATIONS[found] is None:
        names = ", ".join(f"{known} ({number})" for number, known in enumerate(ACTIVATIONS) if known in offered and ACTIVATIONS[known] is not None)
        raise refuse(name, f"is {value!r}, offered are {names}", kind=NotOffered, code="unsupported", argument=argument)
    call["gate_activation"], call["gated"] = ACTIVATIONS[found]
    return found


def trtllm_activation(name: str, then: Callable[..., Any]) -> Callable[..., Any]:
    """Before the call (`then` changes the arguments), or around it (`then` makes the call)."""

    def take(*run_and_call: Any) -> Any:
        activation(name, run_and_call[-1], TRTLLM_ACTIVATIONS)
        return then(*run_and_call)

    return take


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


def given_routes(name: str, then: Optional[Callable[[Call], None]] = None) -> Callable[[Call], None]:
    """Experts and weights that are chosen before: a pair of tensors, or words of both, the expert above sixteen bits of bf16."""

    def take(call: Call) -> None:
        routes = call.pop("topk_ids")
        if isinstance(routes, (tuple, list)):
            if len(routes) != 2:
                raise refuse(name, f"has {len(routes)} members, expected ids and weights", argument="topk_ids")
            call["given_ids"], call["given_weights"] = routes
        else:
            call["given_ids"], call["given_weights"] = halves_of_words(name, routes)
        if then is not None:
            then(call)

    return take


def halves_of_words(name: str, words: Any) -> tuple[Any, Any]:
    words = bare(words)
    if getattr(words, "ndim", 0) != 2 or dtype_name(words.dtype) != "i32":
        found = f"is {words.dtype} {list(words.shape)}" if hasattr(words, "shape") else f"is {words!r}"
        raise refuse(name, f"{found}, expected int32 [T, top_k] or a pair of tensors", argument="topk_ids", code="bad_dtype")
    if not is_torch(words):
        return words >> 16, as_dtype((words & 0xFFFF).astype(np.uint16), "bf16")
    import torch

    return words >> 16, words.contiguous().view(torch.int16)[:, ::2].contiguous().view(torch.bfloat16)


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


def scales_in_tiles(name: str, scales: Any, rows: int, blocks: int) -> Any:
    """Bytes row by row, as tiles of 128 x 4 have them."""
    if int(np.prod(tuple(scales.shape))) != rows * blocks:
        raise refuse(name, f"has shape {list(scales.shape)}, expected {rows} rows of {blocks} scales with swizzled_input_sf=False", argument="input_sf", code="bad_shape")
    return bare(bytes_as(function("nvfp4_block_scale_interleave")(scales.reshape(rows, blocks)), "u8"))


def cutlass_moe(run: Run, call: Call) -> list:
    """Scales come in a list, weights of NVFP4 in words of sixteen codes, their scales in words of four. Upstream returns a list whose first
    element is the output; what follows it there is memory of min_latency_mode, never written."""
    name = "cutlass_fused_moe"
    scales, kind = call.pop("quant_scales") or [], activation(name, call)
    in_tiles = call.pop("swizzled_input_sf", True)
    if call.pop("use_mxfp8_act_scaling", False):
        from .._mx_moe import mixture

        return mixture(call, list(scales), kind, in_tiles)
    if kind == "SwigluStep":
        call["limited"] = "activated"
        if call["swiglu_limit"] is None:  # as upstream's kernel has it
            call["swiglu_limit"] = np.full(bare(call["fc2_expert_weights"]).shape[0], 7.0, np.float32)
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
            rows = bare(words_as_bytes(call["input_sf"], "u8"))
            if not in_tiles:
                rows = scales_in_tiles(name, rows, bare(call["input"]).shape[0], bare(call["input"]).shape[1] // 8)
            call["input_sf"] = as_dtype(bare(words_as_bytes(rows, "f8_e4m3")).reshape(-1, blocks), "f8_e4m3")
    call.update(given)
    result = run(call)
    return [result[0] if type(result) is tuple else result]
