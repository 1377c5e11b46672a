"""The operators that vLLM's library registers, torch.ops._C, _moe_C and _C_cache_ops, over the functions of dodona.compat.vllm: outputs are written.
`define()` registers those that are here, where a library has not; compat.install("vllm") calls it. Parameters are those of 0.33, and what stands behind
those of older versions may be left out. What means nothing to a kernel here must be as if it were not there."""

from __future__ import annotations

from typing import Any, Callable

from .._ops import function
from . import vllm
from ._adapt import NotOffered, refuse


def _custom(name: str) -> Callable[..., Any]:
    return lambda *args: vllm.PACKAGE.attribute("vllm._custom_ops", name)(*args)


def _none(name: str, **given: Any) -> None:
    for argument, value in given.items():
        if value is not None and (hasattr(value, "shape") or value):
            raise refuse(name, "is given, offered is none", kind=NotOffered, code="unsupported", argument=argument)


def _gate(op: str, **how: Any) -> Callable[..., None]:
    """vLLM rounds what the gate becomes before it is multiplied."""

    def run(out: Any, input: Any) -> None:
        function(op)(input.reshape(-1, input.shape[-1]).contiguous(), out.view(-1, out.shape[-1]), round_activation="yes", **how)

    return run


def _written(name: str, *targets: int) -> Callable[..., None]:
    """A function that makes its outputs, for an operator whose outputs stand at these places of its arguments, in the order in which they are made."""

    def run(*args: Any) -> None:
        made = _custom(name)(*(arg for i, arg in enumerate(args) if i not in targets))
        for at, value in zip(targets, made if isinstance(made, tuple) else (made,)):
            args[at].copy_(value.reshape(args[at].shape))

    return run


def _merge_attn_states(output, output_lse, prefix_output, prefix_lse, suffix_output, suffix_lse, tokens_with_context=None, output_scale=None):  # type: ignore[no-untyped-def]
    _none("merge_attn_states", prefill_tokens_with_context=tokens_with_context, output_scale=output_scale)
    _custom("merge_attn_states")(output, prefix_output, prefix_lse, suffix_output, suffix_lse, output_lse)


def _rotary_embedding(positions, query, key, head_size, cos_sin_cache, is_neox, rope_dim_offset=0, inverse=False):  # type: ignore[no-untyped-def]
    _none("rotary_embedding", rope_dim_offset=rope_dim_offset, inverse=inverse)
    _custom("rotary_embedding")(positions, query, key, head_size, cos_sin_cache, is_neox)


def _group_quant(input, output_q, output_s, group_size, eps, low, high, powers, turned=False, aligned=False):  # type: ignore[no-untyped-def]
    """Scales are written as output_s lies, so that the two flags behind say nothing."""
    whole = high == 127
    if powers and output_s.dtype.is_floating_point:  # powers of two as numbers
        quantize = vllm.PACKAGE.attribute("vllm.model_executor.layers.quantization.utils.fp8_utils", "per_token_group_quant_fp8")
        codes, scales = quantize(input, group_size, eps, use_ue8m0=True)
        output_q.copy_(codes), output_s.copy_(scales)
        return
    given = {"group_size": group_size, "eps": eps, "fp8_min": low, "fp8_max": high, "divide": "ieee", "scale_ue8m0": bool(powers)}
    rows = input.reshape(-1, input.shape[-1]).contiguous()
    codes, scales = function("sgl_per_token_group_quant_8bit")(rows, **given)
    output_q.copy_(codes.view(output_q.dtype if not whole else codes.dtype).reshape(output_q.shape))
    output_s.copy_(scales.reshape(output_s.shape))


def _static_fp8(result, input, scale, group_shape=None):  # type: ignore[no-untyped-def]
    _none("static_scaled_fp8_quant", group_shape=None if group_shape in (None, (-1, -1), [-1, -1]) else group_shape)
    _written("scaled_fp8_quant", 0)(result, input, scale)


def _dynamic_fp8(result, input, scale):  # type: ignore[no-untyped-def]
    _written("scaled_fp8_quant", 0, 2)(result, input, scale)


def _rows_fp8(result, input, scale, scale_ub=None):  # type: ignore[no-untyped-def]
    made = _custom("scaled_fp8_quant")(input, None, None, scale_ub, True)
    result.copy_(made[0]), scale.copy_(made[1].reshape(scale.shape))


def _scaled_mm(out, a, b, a_scales, b_scales, bias=None):  # type: ignore[no-untyped-def]
    out.copy_(_custom("cutlass_scaled_mm")(a, b, a_scales, b_scales, out.dtype, bias))


def _fp4_mm(out, a, b, block_scale_a, block_scale_b, alpha):  # type: ignore[no-untyped-def]
    out.copy_(_custom("cutlass_scaled_fp4_mm")(a, b, block_scale_a, block_scale_b, alpha, out.dtype))


def _moe_sum(input, output, topk_ids=None, expert_map=None):  # type: ignore[no-untyped-def]
    _none("moe_sum", topk_ids=topk_ids, expert_map=expert_map)
    _custom("moe_sum")(input, output)


def _align(topk_ids, num_experts, block_size, sorted_token_ids, experts_ids, num_tokens_post_pad, maybe_expert_map=None):  # type: ignore[no-untyped-def]
    _none("moe_align_block_size", maybe_expert_map=maybe_expert_map)
    _custom("moe_align_block_size")(topk_ids, num_experts, block_size, sorted_token_ids, experts_ids, num_tokens_post_pad)


NORM, QUANT = "Tensor input, Tensor weight, float epsilon", "Tensor! result, Tensor input"
OPERATORS: dict[str, tuple[tuple[str, Callable[..., Any]], ...]] = {
    "_C": (
        ("silu_and_mul(Tensor! out, Tensor input) -> ()", _gate("silu_and_mul")),
        ("mul_and_silu(Tensor! out, Tensor input) -> ()", _gate("silu_and_mul", gate_order="up_gate")),
        ("gelu_and_mul(Tensor! out, Tensor input) -> ()", _gate("gelu_and_mul")),
        ("gelu_tanh_and_mul(Tensor! out, Tensor input) -> ()", _gate("gelu_tanh_and_mul")),
        (f"rms_norm(Tensor! out, {NORM}) -> ()", _custom("rms_norm")),
        ("fused_add_rms_norm(Tensor! input, Tensor! residual, Tensor weight, float epsilon) -> ()", _custom("fused_add_rms_norm")),
        (
            "rotary_embedding(Tensor positions, Tensor! query, Tensor!? key, int head_size, Tensor cos_sin_cache, bool is_neox, int rope_dim_offset=0, "
            "bool inverse=False) -> ()",
            _rotary_embedding,
        ),
        (
            "merge_attn_states(Tensor! output, Tensor!? output_lse, Tensor prefix_output, Tensor prefix_lse, Tensor suffix_output, Tensor suffix_lse, "
            "int? prefill_tokens_with_context=None, Tensor? output_scale=None) -> ()",
            _merge_attn_states,
        ),
        (
            "per_token_group_fp8_quant(Tensor input, Tensor! output_q, Tensor! output_s, int group_size, float eps, float fp8_min, float fp8_max, "
            "bool scale_ue8m0, bool dummy_is_scale_transposed=False, bool dummy_is_tma_aligned=False) -> ()",
            _group_quant,
        ),
        (
            "per_token_group_quant_int8(Tensor input, Tensor! output_q, Tensor! output_s, int group_size, float eps, float int8_min, float int8_max) -> ()",
            lambda *given: _group_quant(*given, False),
        ),
        (f"static_scaled_fp8_quant({QUANT}, Tensor scale, int[]? group_shape=None) -> ()", _static_fp8),
        (f"dynamic_scaled_fp8_quant({QUANT}, Tensor! scale) -> ()", _dynamic_fp8),
        (f"dynamic_per_token_scaled_fp8_quant({QUANT}, Tensor! scale, Tensor? scale_ub=None) -> ()", _rows_fp8),
        ("cutlass_scaled_mm(Tensor! out, Tensor a, Tensor b, Tensor a_scales, Tensor b_scales, Tensor? bias=None) -> ()", _scaled_mm),
        ("cutlass_scaled_fp4_mm(Tensor! out, Tensor a, Tensor b, Tensor block_scale_a, Tensor block_scale_b, Tensor alpha) -> ()", _fp4_mm),
        ("awq_dequantize(Tensor _kernel, Tensor _scaling_factors, Tensor _zeros, SymInt split_k_iters, int thx, int thy) -> Tensor", _custom("awq_dequantize")),
        ("fp32_router_gemm(Tensor! output, Tensor mat_a, Tensor mat_b) -> ()", _written("fp32_router_gemm", 0)),
        *((f"{name}(int cuda_device_capability) -> bool", _custom(name)) for name in vllm.hooks.ASKED if name.startswith("cutlass_scaled_mm_supports")),
    ),
    "_moe_C": (
        (
            "topk_softmax(Tensor! topk_weights, Tensor! topk_indices, Tensor! token_expert_indices, Tensor gating_output, bool renormalize=False, "
            "Tensor? bias=None) -> ()",
            _custom("topk_softmax"),
        ),
        (
            "topk_sigmoid(Tensor! topk_weights, Tensor! topk_indices, Tensor! token_expert_indices, Tensor gating_output, bool renormalize=False, "
            "Tensor? bias=None, float routed_scaling_factor=1.0, Tensor? is_padding=None) -> ()",
            _custom("topk_sigmoid"),
        ),
        ("moe_sum(Tensor input, Tensor! output, Tensor? topk_ids=None, Tensor? expert_map=None) -> ()", _moe_sum),
        (
            "moe_align_block_size(Tensor topk_ids, int num_experts, int block_size, Tensor! sorted_token_ids, Tensor! experts_ids, "
            "Tensor! num_tokens_post_pad, Tensor? maybe_expert_map=None) -> ()",
            _align,
        ),
        (
            "grouped_topk(Tensor scores, int n_group, int topk_group, int topk, bool renormalize, float routed_scaling_factor, Tensor bias, "
            "int scoring_func) -> (Tensor, Tensor)",
            _custom("grouped_topk"),
        ),
        ("shuffle_rows(Tensor input_tensor, Tensor dst2src_map, Tensor! output_tensor) -> ()", _written("shuffle_rows", 2)),
    ),
    "_C_cache_ops": (
        (
            "concat_and_cache_mla(Tensor kv_c, Tensor k_pe, Tensor! kv_cache, Tensor slot_mapping, str kv_cache_dtype, Tensor scale) -> ()",
            _custom("concat_and_cache_mla"),
        ),
        (
            "cp_gather_cache(Tensor src_cache, Tensor! dst, Tensor block_table, Tensor cu_seq_lens, int batch_size, Tensor? seq_starts=None) -> ()",
            _custom("cp_gather_cache"),
        ),
        (
            "gather_and_maybe_dequant_cache(Tensor src_cache, Tensor! dst, Tensor block_table, Tensor cu_seq_lens, Tensor token_to_seq, int num_tokens, "
            "str kv_cache_dtype, Tensor scale, Tensor? seq_starts=None) -> ()",
            _custom("gather_and_maybe_dequant_cache"),
        ),
        (
            "reshape_and_cache_flash(Tensor key, Tensor value, Tensor! key_cache, Tensor! value_cache, Tensor slot_mapping, str kv_cache_dtype, "
            "Tensor k_scale, Tensor v_scale) -> ()",
            _custom("reshape_and_cache_flash"),
        ),
        ("concat_mla_q(Tensor ql_nope, Tensor q_pe, Tensor! q_out) -> ()", _custom("concat_mla_q")),
    ),
}

# Which files of its tests look up when they are read; they say so when they are called.
ELEMENTS = "Tensor! out, Tensor input"
ABSENT = (
    *(f"{name}({ELEMENTS}) -> ()" for name in ("gelu_fast", "gelu_new", "gelu_quick", "relu_squared")),
    f"fatrelu_and_mul({ELEMENTS}, float threshold=0.0) -> ()",
    f"swigluoai_and_mul({ELEMENTS}, float alpha=1.702, float limit=7.0) -> ()",
)


def _absent(name: str) -> Callable[..., None]:
    def run(*given: Any) -> None:
        raise refuse(f"torch.ops._C.{name}", f"is not offered; there are {', '.join(names())}", kind=NotOffered, code="unsupported")

    return run


_libraries: dict[str, Any] = {}  # torch forgets the operators of a library that nobody holds


def names() -> list[str]:
    """The operators that are here, as torch.ops has them."""
    return sorted(f"{space}.{schema.partition('(')[0]}" for space, listed in OPERATORS.items() for schema, _ in listed)


def define() -> None:
    """Once in a process; an operator that is registered already is left alone."""
    import torch

    for space, listed in OPERATORS.items():
        if space in _libraries:
            continue
        library = _libraries[space] = torch.library.Library(space, "FRAGMENT")
        missing = [(schema, _absent(schema.partition("(")[0])) for schema in ABSENT] if space == "_C" else []
        for schema, run in (*listed, *missing):
            name = schema.partition("(")[0]
            if not hasattr(getattr(torch.ops, space), name):
                library.define(schema)
                library.impl(name, run, "CompositeExplicitAutograd")
