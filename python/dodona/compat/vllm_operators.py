"""The operators that vLLM's library registers, torch.ops._C, _moe_C and _C_cache_ops, over the functions of dodona.compat.vllm: outputs are written.
`define()` registers those that are here, where a library has not; compat.install("vllm") calls it. Parameters are those of 0.33, and what stands behind
those of older versions may be left out. What means nothing to a kernel here must be as if it were not there."""

from __future__ import annotations

from typing import Any, Callable

from .._ops import function
from . import _operators as operators
from . import vllm
from ._adapt import NotOffered, refuse
from ._hooks import vllm_permutes
from ._hooks.checks import of_shape, of_type, shape_of, writable


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
    _custom("moe_align_block_size")(topk_ids, num_experts, block_size, sorted_token_ids, experts_ids, num_tokens_post_pad, maybe_expert_map)


def _group_quant_packed(input, output_q, output_s_packed, group_size, eps, low, high):  # type: ignore[no-untyped-def]
    """Exponents in words of four, columns first; rows behind those of the input, and words behind them, are zeros."""
    import torch

    name = "per_token_group_fp8_quant_packed"
    shape = shape_of(name, "input", input, 2, 3)
    rows, columns = input.numel() // max(shape[-1], 1), shape[-1]
    words, high_rows = -(-columns // max(group_size, 1) // 4), (rows + 3) // 4 * 4
    if output_s_packed.dtype != torch.int32 or tuple(output_s_packed.shape) != (rows, words) or output_s_packed.stride()[::-1] != (high_rows, 1):
        text = f"is {output_s_packed.dtype} {list(output_s_packed.shape)} of strides {list(output_s_packed.stride())}, expected int32 {[rows, words]} of strides {[1, high_rows]}"
        raise refuse(name, text, argument="output_s_packed", code="bad_shape")
    of_type(name, "input", input, "bf16", "f16", "f32")
    of_type(name, "output_q", output_q, "f8_e4m3")
    writable(name, "output_q", output_q)
    if output_q.dim() != 2 or output_q.shape[0] < rows or output_q.shape[1] != columns:
        raise refuse(name, f"has shape {list(output_q.shape)}, expected {rows} rows of {columns} at least", argument="output_q", code="bad_shape")
    quantize = vllm.PACKAGE.attribute("vllm.model_executor.layers.quantization.utils.fp8_utils", "per_token_group_quant_fp8")
    codes, scales = quantize(input.reshape(rows, columns), group_size, eps, use_ue8m0=True)
    exponents = torch.nn.functional.pad(scales.view(torch.int32) >> 23, (0, words * 4 - scales.shape[1])).view(rows, words, 4).to(torch.uint8)
    output_q.view(torch.uint8).zero_()
    output_q[:rows].view(torch.uint8).copy_(codes.view(torch.uint8))
    torch.as_strided(output_s_packed, (rows + (words - 1) * high_rows,), (1,)).zero_()
    output_s_packed.copy_(exponents.contiguous().view(torch.int32).squeeze(-1))


def _rows_largest(logits, lengths, output, workspace, k, max_seq_len):  # type: ignore[no-untyped-def]
    from ._row_topk import of_lengths

    of_lengths("persistent_topk", logits, lengths, output, lengths.shape[1] if lengths.dim() == 2 else 1, k)


def _room(name: str, argument: str, value: Any, shape: tuple, *kinds: str) -> None:
    of_type(name, argument, value, *kinds)
    of_shape(name, argument, value, shape)
    writable(name, argument, value)


def _norm_quant(result, input, weight, scale, epsilon):  # type: ignore[no-untyped-def]
    import torch

    _room("rms_norm_static_fp8_quant", "result", result, tuple(input.shape), "f8_e4m3")
    normed = torch.empty(input.shape, dtype=input.dtype)
    _custom("rms_norm")(normed, input, weight, epsilon)
    _written("scaled_fp8_quant", 0)(result, normed.view(-1, normed.shape[-1]), scale)


def _added_norm_quant(result, input, residual, weight, scale, epsilon):  # type: ignore[no-untyped-def]
    """The residual becomes the sum; the input stays."""
    _room("fused_add_rms_norm_static_fp8_quant", "result", result, tuple(input.shape), "f8_e4m3")
    normed = input.contiguous().clone()
    _custom("fused_add_rms_norm")(normed, residual, weight, epsilon)
    _written("scaled_fp8_quant", 0)(result, normed.view(-1, normed.shape[-1]), scale)


def _gate_quant(result, input, scale):  # type: ignore[no-untyped-def]
    import torch

    *lead, columns = shape_of("silu_and_mul_quant", "input", input, 2, 3, 4)
    _room("silu_and_mul_quant", "result", result, (*lead, columns // 2), "f8_e4m3")
    gated = torch.empty(*input.shape[:-1], input.shape[-1] // 2, dtype=input.dtype)
    _gate("silu_and_mul")(gated, input)
    _written("scaled_fp8_quant", 0)(result, gated.view(-1, gated.shape[-1]), scale)


def _fp4_quant(input, input_scale, is_sf_swizzled_layout):  # type: ignore[no-untyped-def]
    """Scales in tiles are words of four, those of rows bytes."""
    import torch

    codes, scales = _custom("scaled_fp4_quant")(input, input_scale, is_sf_swizzled_layout)
    return codes, scales.view(torch.int32 if is_sf_swizzled_layout else torch.uint8)


def _fp4_quant_out(input, input_scale, is_sf_swizzled_layout, *, output, output_scale):  # type: ignore[no-untyped-def]
    """Of outputs that have more columns those behind are zeros, and so are their scales."""
    import torch

    codes, scales = _custom("scaled_fp4_quant")(input, input_scale, is_sf_swizzled_layout, "none", output.shape[-1] * 2)
    output.copy_(codes), output_scale.view(torch.uint8).copy_(scales.view(torch.uint8).reshape(output_scale.view(torch.uint8).shape))
    return output, output_scale


def _clamped_gate(out, input, limit, alpha=1.0, beta=0.0):  # type: ignore[no-untyped-def]
    from ._hooks.vllm_fused_quant import silu_and_mul_with_clamp

    silu_and_mul_with_clamp(out, input, limit, alpha, beta)


def _block_quantized(name: str, *sources: Any) -> Callable[..., None]:
    """A function that makes codes and scales, for an operator that writes its first argument and, where the function has None, another one."""

    def run(*args: Any) -> None:
        given = [args[source] if isinstance(source, int) else source(args) for source in sources if not isinstance(source, int) or source < len(args)]
        target = next(value for place, value in enumerate(args) if place and place not in sources and hasattr(value, "shape"))
        rows, columns = args[0].numel() // max(args[0].shape[-1] if args[0].dim() else 1, 1), args[0].shape[-1] if args[0].dim() else 0
        halves = 2 if name.startswith("silu") else 1
        lead = tuple(args[1].shape[:-1])
        _room(name, "result", args[0], (*lead, args[1].shape[-1] // halves if args[1].dim() else 0), "f8_e4m3", "i8")
        size = next((arg for arg in args if isinstance(arg, int) and not isinstance(arg, bool)), max(columns, 1))
        wanted = (rows, columns // max(size, 1))
        of_type(name, "scales", target, "f32")
        writable(name, "scales", target)
        if tuple(target.shape) not in (wanted, wanted[::-1]):
            raise refuse(name, f"has shape {list(target.shape)}, expected {list(wanted)}", argument="scales", code="bad_shape")
        codes, scales = _custom(name)(*given)
        args[0].view(codes.dtype).copy_(codes.reshape(args[0].shape))
        target.copy_(scales.reshape(target.shape) if target.shape != scales.shape[::-1] or target.shape == scales.shape else scales.t())

    return run


def _kind(args: tuple) -> Any:
    return args[0].dtype


NORM, QUANT = "Tensor input, Tensor weight, float epsilon", "Tensor! result, Tensor input"
ROWS = "Tensor! indices, int numRows, int stride0, int stride1, int topK"
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
        (
            "per_token_group_fp8_quant_packed(Tensor input, Tensor! output_q, Tensor! output_s_packed, int group_size, float eps, float fp8_min, "
            "float fp8_max) -> ()",
            _group_quant_packed,
        ),
        (f"top_k_per_row_prefill(Tensor logits, Tensor rowStarts, Tensor rowEnds, {ROWS}) -> ()", _custom("top_k_per_row_prefill")),
        (f"top_k_per_row_decode(Tensor logits, int next_n, Tensor seq_lens, {ROWS}) -> ()", _custom("top_k_per_row_decode")),
        *(
            (f"{name}(Tensor logits, Tensor lengths, Tensor! output, Tensor workspace, int k, int max_seq_len) -> ()", _rows_largest)
            for name in ("persistent_topk", "cooperative_topk")
        ),
        ("rms_norm_static_fp8_quant(Tensor! result, Tensor input, Tensor weight, Tensor scale, float epsilon) -> ()", _norm_quant),
        (
            "fused_add_rms_norm_static_fp8_quant(Tensor! result, Tensor input, Tensor! residual, Tensor weight, Tensor scale, float epsilon) -> ()",
            _added_norm_quant,
        ),
        (
            "silu_and_mul_per_block_quant(Tensor! out, Tensor input, Tensor! scales, int group_size, Tensor? scale_ub=None, "
            "bool is_scale_transposed=False) -> ()",
            _block_quantized("silu_and_mul_per_block_quant", 1, 3, _kind, 4),
        ),
        (
            "rms_norm_dynamic_per_token_quant(Tensor! result, Tensor input, Tensor weight, Tensor! scale, float epsilon, Tensor? scale_ub, "
            "Tensor!? residual) -> ()",
            _block_quantized("rms_norm_dynamic_per_token_quant", 1, 2, 4, _kind, 5, 6),
        ),
        (
            "rms_norm_per_block_quant(Tensor! result, Tensor input, Tensor weight, Tensor! scale, float epsilon, Tensor? scale_ub, Tensor!? residual, "
            "int group_size, bool is_scale_transposed) -> ()",
            _block_quantized("rms_norm_per_block_quant", 1, 2, 4, _kind, lambda args: [1, args[7]], 5, 6),
        ),
        ("silu_and_mul_quant(Tensor! result, Tensor input, Tensor scale) -> ()", _gate_quant),
        ("scaled_fp4_quant(Tensor input, Tensor input_scale, bool is_sf_swizzled_layout) -> (Tensor, Tensor)", _fp4_quant),
        (
            "scaled_fp4_quant.out(Tensor input, Tensor input_scale, bool is_sf_swizzled_layout, *, Tensor(a!) output, Tensor(b!) output_scale) -> "
            "(Tensor(a!), Tensor(b!))",
            _fp4_quant_out,
        ),
        ("silu_and_mul_with_clamp(Tensor! out, Tensor input, float limit, float alpha=1.0, float beta=0.0) -> ()", _clamped_gate),
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
        (
            "batched_moe_align_block_size(int max_tokens_per_batch, int block_size, Tensor expert_num_tokens, Tensor! sorted_token_ids, Tensor! experts_ids, "
            "Tensor! num_tokens_post_pad) -> ()",
            _custom("batched_moe_align_block_size"),
        ),
        (
            "topk_softplus_sqrt(Tensor! topk_weights, Tensor! topk_indices, Tensor! token_expert_indices, Tensor gating_output, bool renormalize, "
            "float routed_scaling_factor, Tensor? bias=None, Tensor? input_ids=None, Tensor? tid2eid=None, Tensor? is_padding=None) -> ()",
            _custom("topk_hash_softplus_sqrt"),
        ),
        (
            "moe_permute(Tensor input, Tensor topk_ids, Tensor token_expert_indices, Tensor? expert_map, int n_expert, int n_local_expert, int topk, "
            "Tensor! permuted_input, Tensor! expert_first_token_offset, Tensor! inv_permuted_idx, Tensor! permuted_idx) -> ()",
            vllm_permutes.permute,
        ),
        (
            "moe_unpermute(Tensor permuted_hidden_states, Tensor topk_weights, Tensor inv_permuted_idx, Tensor? expert_first_token_offset, int topk, "
            "Tensor! hidden_states) -> ()",
            vllm_permutes.unpermute,
        ),
        (
            "moe_permute_with_scratch(Tensor input, Tensor topk_ids, Tensor token_expert_indices, Tensor? expert_map, int n_expert, int n_local_expert, int topk, "
            "Tensor! permuted_input, Tensor! expert_first_token_offset, Tensor! inv_permuted_idx, Tensor! permuted_idx, Tensor! sort_workspace, "
            "Tensor! permuted_experts_id, Tensor! sorted_row_idx, Tensor! topk_ids_for_sort) -> ()",
            vllm_permutes.permute_with_scratch,
        ),
        ("moe_permute_sort_workspace_size(int num_expanded_rows, int num_experts) -> int", vllm_permutes.sort_workspace_size),
        ("moe_permute_unpermute_supported() -> bool", lambda: True),
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
        (
            "cp_gather_and_upconvert_fp8_kv_cache(Tensor src_cache, Tensor! dst, Tensor block_table, Tensor workspace_starts, int batch_size, "
            "Tensor? seq_starts=None) -> ()",
            _custom("cp_gather_and_upconvert_fp8_kv_cache"),
        ),
        (
            "indexer_k_quant_and_cache(Tensor k, Tensor! kv_cache, Tensor slot_mapping, int quant_block_size, str kv_cache_dtype) -> ()",
            _custom("indexer_k_quant_and_cache"),
        ),
        (
            "cp_gather_indexer_k_quant_cache(Tensor kv_cache, Tensor! dst_k, Tensor! dst_scale, Tensor block_table, Tensor cu_seq_lens) -> ()",
            _custom("cp_gather_indexer_k_quant_cache"),
        ),
        (
            "concat_and_cache_mla_rope_fused(Tensor positions, Tensor! q_pe, Tensor! k_pe, Tensor kv_c, Tensor cos_sin_cache, bool is_neox, "
            "Tensor slot_mapping, Tensor! kv_cache, str kv_cache_dtype, Tensor kv_cache_scale) -> ()",
            _custom("concat_and_cache_mla_rope_fused"),
        ),
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


def _listed() -> dict[str, list[tuple[str, Callable[..., Any]]]]:
    missing = [(schema, _absent(operators.name_of(schema))) for schema in ABSENT]
    whole = {space: [*listed, *(missing if space == "_C" else [])] for space, listed in OPERATORS.items()}
    return {space: [(schema, operators.refusing(operators.name_of(schema), run)) for schema, run in listed] for space, listed in whole.items()}


def names() -> list[str]:
    """The operators that are here, as torch.ops has them."""
    return operators.names(OPERATORS)


def define() -> None:
    """Once in a process; an operator that is registered already is left alone."""
    operators.define(_listed())
