"""sgl_kernel's functions on CPU tensors; see dodona.compat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Optional

from . import _collectives as collectives
from . import _testing as of_tests
from ._adapt import Op, refuse
from ._hooks import arrays, attention, draws, flash_attention, quantized, transfers
from ._packages import Later, Package, in_place_of


@dataclass
class FusedSetKVBufferArg:
    """What apply_rope_with_cos_sin_cache_inplace writes to the KV cache beside rotating: `value` to v_buffer and the rotated keys to k_buffer,
    at the rows `cache_loc` (int64). The scales must be None."""

    value: Any
    k_buffer: Any
    v_buffer: Any
    k_scale: Optional[float]
    v_scale: Optional[float]
    cache_loc: Any


def copy_to_gpu_no_ce(input: Any, output: Any) -> None:
    """Upstream's copy of 64 or 72 int32, whose only memory here is the host's."""
    for argument, value in (("input", input), ("output", output)):
        shape = getattr(value, "shape", None)
        if shape is None or tuple(shape) not in ((64,), (72,)) or arrays.type_of(value) != "i32" or tuple(shape) != tuple(input.shape):
            found = f"is {value!r}" if shape is None else f"is {value.dtype} {list(shape)}"
            raise refuse("copy_to_gpu_no_ce", f"{found}, expected int32 [64] or [72], alike", argument=argument, code="bad_shape")
    if reason := arrays.not_writable(output):
        raise refuse("copy_to_gpu_no_ce", f"{reason}, and is written", argument="output")
    output[...] = input


def is_arch_support_pdl() -> bool:
    """A CPU launches no kernels."""
    return False


DRAWN = ("generator", "check_nan")
TOP_K_RENORM = Op("top_k_renorm_prob", before=draws.thresholds(top_k="int32"))
TOP_P_RENORM = Op("top_p_renorm_prob", before=draws.thresholds(top_p="float32"))

PER_TENSOR = Op(before=arrays.room_behind(output_q=lambda shape: shape))
PER_TOKEN = Op(before=arrays.room_behind(output_q=lambda shape: shape, output_s=lambda shape: (*shape[:-1], 1)))

GEMMA = {
    "gemma_fused_add_rmsnorm": Op("fused_add_rmsnorm", sets={"weight_bias": 1.0}),
    "gemma_rmsnorm": Op("rmsnorm", sets={"weight_bias": 1.0}),
}

TABLES_OF_LAYERS = {
    name: Op(around=transfers.tables_of_layers(name, *tables, layer_of=layer_of))
    for name, tables, layer_of in (
        ("transfer_kv_all_layer", ("src_k_layers", "dst_k_layers", "src_v_layers", "dst_v_layers"), {}),
        ("transfer_kv_all_layer_mla", ("src_layers", "dst_layers"), {}),
        ("transfer_kv_all_layer_lf_pf", ("src_k_layers", "src_v_layers"), {"dst_k": 1, "dst_v": 1}),
        ("transfer_kv_all_layer_mla_lf_pf", ("src_layers",), {"dst": 1}),
        ("transfer_kv_all_layer_lf_ph", ("src_k_layers", "src_v_layers"), {"dst_k": 3, "dst_v": 3}),
    )
}

LISTS_OF_POOLS = {
    "transfer_kv_all_layer_direct_lf_pf": Op(around=transfers.lists_of_pools("transfer_kv_all_layer_direct_lf_pf", "src_ptrs", "dst_ptrs")),
    "transfer_kv_direct": Op(around=transfers.lists_of_pools("transfer_kv_direct", "src_layers", "dst_layers", alike=True)),
    "transfer_kv_per_layer_direct_pf_lf": Op(around=transfers.lists_of_pools("transfer_kv_per_layer_direct_pf_lf", "src_ptrs", "dst_ptrs")),
}

FUNCTIONS = {
    **GEMMA,
    **TABLES_OF_LAYERS,
    **LISTS_OF_POOLS,
    "apply_rope_with_cos_sin_cache_inplace": Op(takes=("fused_set_kv_buffer_arg",), before=attention.set_kv_buffer),
    "apply_token_bitmask_inplace_cuda": Op(before=arrays.rows_of_a_mask),
    "cutlass_fp4_group_mm": Op(
        takes=("params",), makes=("ab_strides", "c_strides", "problem_sizes", "expert_offsets", "blockscale_offsets"), before=quantized.params
    ),
    "build_tree_kernel_efficient": Op(before=draws.tree_as_callers_have_it),
    "fast_topk": Op(around=draws.largest_along),
    "flash_mla_with_kvcache": Op(takes=("indices",), around=attention.dense_or_sparse),
    "fp8_blockwise_scaled_mm": Op(before=quantized.rows_that_are_padded),
    "fp8_scaled_mm": Op(before=quantized.one_scale_of_all_rows),
    "gelu_and_mul": Op(before=arrays.rows_of_16_bytes("gelu_and_mul")),
    "gelu_tanh_and_mul": Op(before=arrays.rows_of_16_bytes("gelu_tanh_and_mul")),
    "merge_state": Op(before=attention.lse_in_f32),
    "kimi_k2_moe_fused_gate": Op(around=arrays.as_list),
    "merge_state_v2": Op(before=attention.lse_in_f32),
    "moe_align_block_size": Op(before=arrays.as_it_lies("topk_ids")),
    "moe_fused_gate": Op(around=arrays.as_list),
    "scaled_fp4_experts_quant": Op(around=quantized.room_for_experts),
    "scaled_fp4_grouped_quant": Op(around=quantized.views_of_groups),
    "scaled_fp4_quant": Op(before=quantized.rows),
    "segment_packbits": Op(before=draws.indptr_of_the_batch),
    "min_p_sampling_from_probs": Op(takes=DRAWN, before=draws.drawn("generator", min_p="float32")),
    "sgl_per_token_group_quant_fp8": Op("sgl_per_token_group_quant_8bit"),
    "sgl_per_token_group_quant_int8": Op("sgl_per_token_group_quant_8bit"),
    "sgl_per_tensor_quant_fp8": PER_TENSOR,
    "sgl_per_token_quant_fp8": PER_TOKEN,
    "shuffle_rows": Op(takes=("output_tensor_shape",), before=quantized.stated_shape),
    "silu_and_mul": Op(before=arrays.rows_of_16_bytes("silu_and_mul")),
    "silu_and_mul_scaled_fp4_grouped_quant": Op(around=quantized.views_of_groups),
    "top_k_mask_logits": Op(before=draws.thresholds(top_k="int32")),
    "top_k_renorm_prob": TOP_K_RENORM,
    "top_k_renorm_probs": TOP_K_RENORM,
    "top_k_top_p_sampling_from_probs": Op(takes=DRAWN, before=draws.drawn("generator", top_k="int32", top_p="float32")),
    "top_p_renorm_prob": TOP_P_RENORM,
    "top_p_renorm_probs": TOP_P_RENORM,
    "top_p_sampling_from_probs": Op(takes=DRAWN, before=draws.drawn("generator", top_p="float32")),
    "weak_ref_tensor": Op(around=arrays.same_memory),
}

# The operators torch.ops.sgl_kernel, which take outputs in other places, and name some arguments otherwise.
OPERATORS = {
    **GEMMA,
    **TABLES_OF_LAYERS,
    **LISTS_OF_POOLS,
    "apply_rope_pos_ids_cos_sin_cache": Op(
        "apply_rope_with_cos_sin_cache_inplace",
        names={"q_rope": "query", "k_rope": "key", "pos_ids": "positions", "v": "value", "kv_cache_loc": "cache_loc"},
        takes=("q", "k", "interleave"),
        makes=("head_size", "is_neox"),
        around=attention.separate_outputs,
    ),
    "apply_token_bitmask_inplace_cuda": Op(before=arrays.one_row("logits", "bitmask")),
    "bmm_fp8": Op(names={"D": "out"}),
    "build_tree_kernel_efficient": Op(before=draws.tree_as_callers_have_it),
    "cutlass_fp4_group_mm": Op(names={"a": "a_fp4", "b": "b_fp4", "sf_offsets": "blockscale_offsets", "output": "out"}),
    "cutlass_w4a8_moe_mm": Op(names={"expert_offsets": "experts_offsets"}),
    "cutlass_mla_get_workspace_size": Op(names={"_0": "max_seq_len", "_1": "num_batches", "_2": "sm_count", "_3": "num_kv_splits"}),
    "fp8_blockwise_scaled_mm": Op(before=quantized.rows_that_are_padded),
    "fp8_scaled_mm": Op(before=quantized.one_scale_of_all_rows),
    "dsv3_router_gemm": Op(names={"mat_a": "hidden_states", "mat_b": "router_weights"}),
    "fast_hadamard_transform": Op("hadamard_transform"),
    "fast_hadamard_transform_12N": Op("hadamard_transform_12n"),
    "fast_hadamard_transform_20N": Op("hadamard_transform_20n"),
    "fast_hadamard_transform_28N": Op("hadamard_transform_28n"),
    "fast_hadamard_transform_40N": Op("hadamard_transform_40n"),
    "fast_topk": Op("fast_topk_v2", names={"indices": "topk_indices"}),
    "fast_topk_transform_fused": Op(names={"src_page_table": "page_table_size_1"}),
    "kimi_k2_moe_fused_gate": Op(names={"input": "input_tensor"}),
    "moe_align_block_size": Op(before=arrays.as_it_lies("topk_ids")),
    "moe_fused_gate": Op(names={"input": "input_tensor"}),
    "moe_sum": Op(names={"input": "input_tensor", "output": "output_tensor"}),
    "moe_sum_reduce": Op(names={"input": "input_tensor", "output": "output_tensor"}),
    "qserve_w4a8_per_chn_gemm": Op(names=quantized.without_underscores),
    "qserve_w4a8_per_group_gemm": Op(names=quantized.without_underscores),
    "scaled_fp4_experts_quant": Op(
        names={"input": "input_tensor", "input_offset_by_experts": "expert_offsets", "output_scale_offset_by_experts": "blockscale_offsets"},
        takes=("output", "output_scale"),
        around=quantized.words_of_experts_scales,
    ),
    "scaled_fp4_quant": Op(names={"input_scale": "input_global_scale"}, before=quantized.words_of_scales),
    "segment_packbits": Op(before=draws.indptr_of_the_batch),
    "sgl_per_token_group_quant_8bit_v2": Op("sgl_per_token_group_quant_8bit", sets={"enable_v2": True}),
    "sgl_per_tensor_quant_fp8": PER_TENSOR,
    "sgl_per_token_quant_fp8": PER_TOKEN,
    "shuffle_rows": Op(names={"input": "input_tensor", "output": "output_tensor"}),
    "store_kv_cache": Op("set_kv_buffer_kernel", names={"out_loc": "loc"}),
    "min_p_sampling_from_probs": Op(
        names={"output": "samples", "maybe_indices": "indices"},
        takes=("gen", "maybe_min_p_arr", "min_p_val"),
        makes=("min_p",),
        before=draws.each_or_one("min_p", then=draws.drawn("gen")),
    ),
    "top_k_mask_logits": Op(takes=("maybe_top_k_arr", "top_k_val"), makes=("top_k",), before=draws.each_or_one("top_k")),
    "top_k_renorm_probs": Op("top_k_renorm_prob", takes=("maybe_top_k_arr", "top_k_val"), makes=("top_k",), before=draws.each_or_one("top_k")),
    "top_k_top_p_sampling_from_probs": Op(
        names={"output": "samples", "maybe_indices": "indices"},
        takes=("gen", "maybe_top_k_arr", "top_k_val", "maybe_top_p_arr", "top_p_val"),
        makes=("top_k", "top_p"),
        sets={"filter_apply_order": "joint"},
        before=draws.each_or_one("top_k", "top_p", then=draws.drawn("gen")),
    ),
    "top_p_renorm_probs": Op("top_p_renorm_prob", takes=("maybe_top_p_arr", "top_p_val"), makes=("top_p",), before=draws.each_or_one("top_p")),
    "top_p_sampling_from_probs": Op(
        names={"output": "samples", "maybe_indices": "indices"},
        takes=("gen", "maybe_top_p_arr", "top_p_val"),
        makes=("top_p",),
        before=draws.each_or_one("top_p", then=draws.drawn("gen")),
    ),
    "topk_sigmoid": Op(names={"topk_indices": "topk_ids"}),
    "topk_softmax": Op(names={"topk_indices": "topk_ids"}),
    "weak_ref_tensor": Op(around=arrays.same_memory),
}

PACKAGE = Package(
    "sgl_kernel",
    FUNCTIONS,
    torch_lines=OPERATORS,
    own={
        **{f"sgl_kernel.flash_attn.{made.__name__}": made for made in (flash_attention.flash_attn_varlen_func, flash_attention.flash_attn_with_kvcache)},
        "sgl_kernel.elementwise.FusedSetKVBufferArg": FusedSetKVBufferArg,
        "sgl_kernel.elementwise.copy_to_gpu_no_ce": copy_to_gpu_no_ce,
        "sgl_kernel.kvcacheio.transfer_embedding_ranges_direct": transfers.transfer_embedding_ranges_direct,
        "sgl_kernel.sampling.top_k_top_p_sampling_from_logits": draws.from_logits(lambda name: PACKAGE.adapter(name).function),
        "sgl_kernel.utils.is_arch_support_pdl": is_arch_support_pdl,
        **{
            f"sgl_kernel.testing.rotary_embedding.{name}": Later(lambda name=name: of_tests.rotary_classes()[name])
            for name in ("RotaryEmbedding", "FlashInferRotaryEmbedding", "SglKernelRotaryEmbedding", "MHATokenToKVPool")
        },
        **{f"sgl_kernel.testing.rotary_embedding.{made.__name__}": made for made in (of_tests._apply_rotary_emb, of_tests.create_inputs)},
        **{
            f"sgl_kernel.test_utils.{made.__name__}": made
            for made in (
                of_tests._compute_balanced_split, of_tests._compute_imbalanced_split, of_tests.assert_all_close_or_tiny_diff,
                of_tests.create_per_token_group_quant_test_data,
            )
        },
        **{
            f"sgl_kernel.allreduce.{made.__name__}": made
            for made in (collectives.init_custom_ar, collectives.dispose, collectives.meta_size, collectives.register_buffer, collectives.all_reduce)
        },
    },
    # How a kernel is launched, and what it works in.
    ignored=frozenset({"enable_pdl", "device", "workspace", "workspace_buffer", "cublas_handle", "cuda_stream"}),
    # One way to call flash_mla_with_kvcache, and the terms of all ranks together.
    within=frozenset({"flash_mla_sparse_decode", "all_reduce"}),
)

__getattr__, __dir__ = in_place_of(PACKAGE, globals())
