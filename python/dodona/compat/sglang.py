"""sglang's own functions around experts, on CPU tensors: permutes of `layers/moe/ep_moe/kernels.py` and the routers' front end of `layers/moe/topk.py`.

    from dodona.compat.sglang import TopKConfig, pre_reorder_for_cutlass_moe, select_experts

Parameters, what is returned and what is written are upstream's. Triton kernels are launched as upstream launches them, `kernel[grid](...)`, whatever
the grid. This is no package in sglang's place: `install` does not take it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, NamedTuple, Optional

import numpy as np

from .._library import Error
from .._ops import function
from ._adapt import Adapter, Call, NotOffered, Op, as_refused, refuse
from ._hooks.arrays import bare, like
from ._upstream import signature_of


def _shape(value: Any) -> tuple:
    """Of what has none an empty one: the op then says what it is."""
    return tuple(getattr(bare(value), "shape", ()))


def _slots_by_token(function: str) -> Callable[[Call], None]:
    """Callers keep what they know of slots flat; the number of slots a token says how many belong together."""

    def hook(call: Call) -> None:
        topk = call["topk"]
        for name in ("src2dst", "topk_ids", "topk_weights"):
            shape = _shape(call.get(name))
            if len(shape) != 1:
                continue
            if isinstance(topk, bool) or not isinstance(topk, (int, np.integer)) or topk < 1:
                raise refuse(function, f"is {topk!r}, expected how many slots a token has", argument="topk")
            if shape[0] % topk:
                raise refuse(function, f"has {shape[0]} elements, expected a multiple of topk = {topk}", argument=name, code="bad_shape")
            call[name] = like(call[name], bare(call[name]).reshape(-1, int(topk)))

    return hook


def _scales_of_blocks(call: Call) -> None:
    """Upstream copies a scale for each 128 elements, or words of four, and asserts that there are so many; the op copies what there is."""
    if len(_shape(call["recv_x"])) != 2:
        return
    blocks = _shape(call["recv_x"])[1] // 128
    expected, what = (-(-blocks // 4), "words of four exponents") if call["scale_ue8m0"] else (blocks, "scales")
    for name in ("recv_x_scale", "output_tensor_scale"):
        shape = _shape(call[name])
        if len(shape) == 2 and shape[1] != expected:
            text = f"has {shape[1]} columns, expected {expected}, the {what} of {blocks} blocks of 128 that a row of recv_x has"
            raise refuse("ep_scatter", text, argument=name, code="bad_shape")


def _first_scale(call: Call) -> None:
    """Upstream takes a scale for each expert too, and its kernel divides by the first of them whatever the expert."""
    scale, experts = bare(call["scale"]), _shape(call["input"])[:1]
    if not hasattr(scale, "reshape"):
        return
    if int(np.prod(_shape(scale))) != 1 and _shape(scale)[:1] != experts:
        name, many = "silu_and_mul_masked_post_per_tensor_quant_fwd", f" or {experts[0]}, one for each expert" if experts else ""
        raise refuse(name, f"has shape {list(scale.shape)}, expected one element{many}", argument="scale", code="bad_shape")
    call["scale"] = like(call["scale"], scale.reshape(-1)[:1])


def _refusing(name: str, called: Callable[..., Any]) -> Callable[..., Any]:
    """What it refuses is refused by the name that was called."""

    def through(*args: Any, **kwargs: Any) -> Any:
        try:
            return called(*args, **kwargs)
        except Error as error:
            raise as_refused(error, name) from None

    return through


def _rows_there_are(run: Callable[..., Any], call: Call) -> Any:
    ids, rows, begins = run(call)
    return ids[: int(begins[-1])], rows, begins


def _expected_rows(run: Callable[..., Any], call: Call) -> Any:
    masked, rows, codes, scales = run(call)
    slots = int(np.prod(tuple(call["topk_ids"].shape)))
    return masked, (slots - 1) // call["num_local_experts"] + 1, rows.reshape(-1), codes, scales


# Upstream's function, its parameters, and what names do not say.
FUNCTIONS = {
    "cutlass_w4_run_moe_ep_preproess": ("(topk_ids) -> Tensor", Op()),
    "deepep_ll_get_cutlass_w4a8_moe_mm_data": ("(masked_m, problem_sizes1, problem_sizes2, num_experts, n, k) -> Tensor", Op()),
    "deepep_run_moe_deep_preprocess": ("(topk_ids, num_experts) -> Tensor", Op(around=_rows_there_are)),
    "ep_gather": ("(input_tensor, recv_topk_ids, recv_topk_weight, input_index, output_tensor) -> None", Op()),
    "ep_scatter": (
        "(recv_x, recv_x_scale, recv_topk, num_recv_tokens_per_expert, expert_start_loc, output_tensor, output_tensor_scale, m_indices, "
        "output_index, scale_ue8m0=False) -> None",
        Op(before=_scales_of_blocks),
    ),
    "moe_ep_deepgemm_preprocess": (
        "(topk_ids, num_local_experts, hidden_states, top_k, block_shape, output_dtype=None) -> Tensor",
        Op(around=_expected_rows),
    ),
    "post_reorder_for_cutlass_moe": (
        "(down_output, output, src2dst, topk_ids, topk_weights, num_local_experts, topk, num_tokens, hidden_size, routed_scaling_factor) -> None",
        Op(before=_slots_by_token("post_reorder_for_cutlass_moe")),
    ),
    "pre_reorder_for_cutlass_moe": (
        "(input, gateup_input, src2dst, topk_ids, a1_scales, num_local_experts, topk, num_tokens, hidden_size) -> None",
        Op(before=_slots_by_token("pre_reorder_for_cutlass_moe")),
    ),
    "silu_and_mul_masked_post_per_tensor_quant_fwd": ("(input, output, masked_m, scale) -> Tensor", Op(before=_first_scale)),
    "silu_and_mul_masked_post_quant_fwd": (
        "(input, output, output_scale, quant_group_size, masked_m, scale_ue8m0=False) -> None",
        Op(only={"scale_ue8m0": (False,)}),
    ),
    "silu_mul_static_tensorwise_quant_for_cutlass_moe": (
        "(input, output, scale, num_tokens_tensor, expected_num_tokens, intermediate_size) -> None",
        Op(),
    ),
}
KERNELS = {
    "deepep_permute_triton_kernel": (
        "(input_ptr, gateup_input_ptr, src2dst_ptr, topk_ids_ptr, a1_scales_ptr, topk, hidden_size, BLOCK_SIZE) -> None",
        {"input_ptr": "input", "gateup_input_ptr": "gateup_input"},
    ),
    "deepep_post_reorder_triton_kernel": (
        "(down_output_ptr, output_ptr, src2dst_ptr, topk_ids_ptr, topk_weights_ptr, topk, hidden_size, BLOCK_SIZE) -> None",
        {"down_output_ptr": "down_output", "output_ptr": "output"},
    ),
    "post_reorder_triton_kernel": (
        "(down_output_ptr, output_ptr, src2dst_ptr, topk_ids_ptr, topk_weights_ptr, topk, hidden_size, BLOCK_SIZE) -> None",
        {"down_output_ptr": "down_output", "output_ptr": "output"},
    ),
}


class Kernel:
    """A Triton kernel: `kernel[grid](...)` runs it over all tokens."""

    def __init__(self, name: str, parameters: str, names: dict[str, str]) -> None:
        self.__name__ = name
        self.__signature__ = signature_of(parameters)
        self._names = {p: names.get(p, p.removesuffix("_ptr")) for p in self.__signature__.parameters}

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        return self._launch

    def _launch(self, *args: Any, **kwargs: Any) -> None:
        given = self.__signature__.bind(*args, **kwargs).arguments
        call = {self._names[name]: value for name, value in given.items()}
        _slots_by_token(self.__name__)(call)
        for idle in ("a1_scales", "topk", "hidden_size", "BLOCK_SIZE"):
            call.pop(idle, None)
        if self.__name__ == "deepep_post_reorder_triton_kernel":
            call.pop("topk_ids")  # its op reads rows alone
        _refusing(self.__name__, function(self.__name__))(**call)


for _name, (_parameters, _line) in FUNCTIONS.items():
    globals()[_name] = Adapter(_name, signature_of(_parameters), _line, "sglang", frozenset()).function
for _name, (_parameters, _names) in KERNELS.items():
    globals()[_name] = Kernel(_name, _parameters, _names)


# ---- the routers' front end


@dataclass
class TopKConfig:
    """Of one layer, as upstream's."""

    top_k: int
    use_grouped_topk: bool = False
    topk_group: Optional[int] = None
    num_expert_group: Optional[int] = None
    renormalize: bool = True
    num_fused_shared_experts: int = 0
    custom_routing_function: Optional[Callable[..., Any]] = None
    correction_bias: Any = None
    torch_native: bool = False
    routed_scaling_factor: Optional[float] = None
    apply_routed_scaling_factor_on_output: bool = False
    fused_shared_experts_scaling_factor: Optional[float] = None
    output_format: Any = None
    scoring_func: str = "softmax"


class StandardTopKOutput(NamedTuple):
    topk_weights: Any
    topk_ids: Any
    router_logits: Any


def select_experts(
    hidden_states: Any,
    router_logits: Any,
    topk_config: Any,
    *,
    layer_id: Optional[int] = None,
    num_token_non_padded: Any = None,
    expert_location_dispatch_info: Any = None,
    **how: Any,
) -> StandardTopKOutput:
    """The router that upstream calls for these arguments, then expert map and padded rows; `how`: mode and threads. Of `hidden_states` the number of
    rows is looked at. Of expert maps the static algorithm is offered: the others draw replicas at random."""
    if topk_config.custom_routing_function is not None:
        raise refuse("select_experts", "is given, which is the caller's own router", kind=NotOffered, code="unsupported", argument="custom_routing_function")
    rows, logits = _shape(hidden_states)[:1], _shape(router_logits)
    if hidden_states is not None and len(logits) == 2 and rows != logits[:1]:
        found = f"has {rows[0]} rows" if rows else f"is {hidden_states!r}"
        raise refuse("select_experts", f"{found}, router_logits has {logits[0]}", argument="hidden_states", code="bad_shape")
    info, mapped = expert_location_dispatch_info, None
    if info is not None:
        if info.ep_dispatch_algorithm != "static":
            raise refuse(
                "select_experts", f"is {info.ep_dispatch_algorithm!r}, offered is 'static'", kind=NotOffered, code="unsupported",
                argument="ep_dispatch_algorithm",
            )  # fmt: skip
        mapped = info.partial_logical_to_rank_dispatch_physical_map
    c = topk_config
    if c.use_grouped_topk and (c.topk_group is None or c.num_expert_group is None):
        raise refuse("select_experts", "is given, expected topk_group and num_expert_group with it", argument="use_grouped_topk")
    weights, ids = _refusing("select_experts", function("select_experts"))(
        router_logits=router_logits,
        correction_bias=c.correction_bias,
        logical_to_physical_map=mapped,
        num_token_non_padded=num_token_non_padded,
        top_k=c.top_k,
        topk_group=0 if c.topk_group is None else c.topk_group,
        num_expert_group=0 if c.num_expert_group is None else c.num_expert_group,
        num_fused_shared_experts=c.num_fused_shared_experts,
        use_grouped_topk=c.use_grouped_topk,
        renormalize=c.renormalize,
        torch_native=c.torch_native,
        routed_scaling_factor=0.0 if c.routed_scaling_factor is None else c.routed_scaling_factor,
        apply_routed_scaling_factor_on_output=c.apply_routed_scaling_factor_on_output or False,
        scoring_func=c.scoring_func,
        **how,
    )
    return StandardTopKOutput(weights, ids, router_logits)


def _front(name: str, **fixed: Any) -> Callable[..., Any]:
    """One of the front end's ways, as upstream offers it by itself."""

    def way(
        hidden_states: Any, gating_output: Any, topk: int, renormalize: bool, *, correction_bias: Any = None, num_token_non_padded: Any = None,
        expert_location_dispatch_info: Any = None, **options: Any,
    ) -> Any:  # fmt: skip
        how = {key: options.pop(key) for key in ("mode", "threads") if key in options}
        config = TopKConfig(top_k=topk, renormalize=renormalize, correction_bias=correction_bias, **fixed, **options)
        out = _refusing(name, select_experts)(
            hidden_states, gating_output, config, num_token_non_padded=num_token_non_padded, expert_location_dispatch_info=expert_location_dispatch_info, **how
        )
        return out.topk_weights, out.topk_ids

    way.__name__ = way.__qualname__ = name
    way.__doc__ = f"sglang's `{name}`: select_experts with {', '.join(f'{k}={v}' for k, v in fixed.items()) or 'a scoring_func'}."
    return way


fused_topk = _front("fused_topk")
grouped_topk = _front("grouped_topk", use_grouped_topk=True)
_biased = _front("biased_grouped_topk", use_grouped_topk=True)


def biased_grouped_topk(hidden_states: Any, gating_output: Any, correction_bias: Any, topk: int, renormalize: bool, **options: Any) -> Any:
    """sglang's `biased_grouped_topk`: the fused gate, Kimi K2's or torch's router, by the sizes."""
    return _biased(hidden_states, gating_output, topk, renormalize, correction_bias=correction_bias, **options)


__all__ = sorted(
    [*FUNCTIONS, *KERNELS, "StandardTopKOutput", "TopKConfig", "biased_grouped_topk", "fused_topk", "grouped_topk", "select_experts"]
)
