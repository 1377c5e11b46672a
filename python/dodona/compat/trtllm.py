"""TensorRT-LLM's operators that a DeepSeek model reaches, torch.ops.trtllm and torch.ops.tensorrt_llm, on CPU tensors. `define()` registers those that are here where its
library has not; compat.install("trtllm") calls it. Schemas are those of the summer of 2026; what stands behind those of older versions may be left out."""

from __future__ import annotations

from typing import Any, Callable

from . import _operators as operators
from . import _trtllm_products as products
from . import _trtllm_quantizers as quantizers
from . import _trtllm_routes as routes

BLOCKS = "Tensor mat1, Tensor mat2, Tensor mat1Scale, Tensor mat2Scale"
FOUR = f"{BLOCKS}, Tensor globalScale"
DSL = "Tensor input, Tensor weight, Tensor input_scale, Tensor weight_scale"
SIXTEEN = "Tensor mat_a, Tensor mat_b, Tensor? bias, ScalarType? out_dtype"
BUFFERS = "int output_buffer_kind=0, int[]? group=None"
WEIGHTS = "Tensor gemm1_weights, Tensor gemm1_weights_scale, Tensor gemm2_weights, Tensor gemm2_weights_scale"
EXPERTS = (
    "int num_experts, int top_k, int? n_group, int? topk_group, int intermediate_size, int local_expert_offset, int local_num_experts, "
    "float? routed_scaling_factor, int routing_method_type"
)

TRTLLM: tuple[tuple[str, Callable[..., Any]], ...] = (
    ("fp8_quantize_1x128(Tensor input, bool use_ue8m0=False) -> (Tensor, Tensor)", quantizers.fp8_quantize_1x128),
    ("fp8_batched_quantize_1x128_permute102(Tensor input) -> (Tensor, Tensor)", quantizers.fp8_batched_quantize_1x128_permute102),
    ("fp8_quantize_1x128_packed_ue8m0(Tensor input, bool use_r128c4_layout=False) -> (Tensor, Tensor)", quantizers.fp8_quantize_1x128_packed_ue8m0),
    (
        "fp4_quantize(Tensor input, Tensor? globalScale, int sfVecSize, bool sfUseUE8M0=False, bool isSfSwizzledLayout=True) -> (Tensor, Tensor)",
        quantizers.fp4_quantize,
    ),
    ("calculate_nvfp4_global_scale(Tensor input, Tensor? tokensPerBatch) -> Tensor", quantizers.calculate_nvfp4_global_scale),
    ("mxfp8_quantize(Tensor input, bool swizzledLayout=True, int alignment=32) -> (Tensor, Tensor)", quantizers.mxfp8_quantize),
    ("block_scale_interleave(Tensor input) -> Tensor", quantizers.block_scale_interleave),
    ("block_scale_interleave_reverse(Tensor input) -> Tensor", quantizers.block_scale_interleave_reverse),
    (f"fp8_block_scaling_gemm_impl({BLOCKS}) -> Tensor", products.fp8_block_scaling_gemm_impl),
    ("fp8_block_scaling_gemm(Tensor a, Tensor b, Tensor a_scale, Tensor b_scale, int tune_max_num_tokens=4096) -> Tensor", products.fp8_block_scaling_gemm),
    (f"fp8_block_scaling_bmm({BLOCKS}, ScalarType? out_dtype=None) -> Tensor", products.fp8_block_scaling_bmm),
    (f"fp8_block_scaling_bmm_out({BLOCKS}, Tensor(a!) out) -> Tensor(a!)", products.fp8_block_scaling_bmm_out),
    (f"cute_dsl_fp8_gemm_blackwell({DSL}, ScalarType? output_dtype=None, bool use_tvm_ffi=True) -> Tensor", products.cute_dsl_fp8_gemm_blackwell),
    (f"cute_dsl_fp8_bmm_blackwell({DSL}, Tensor(a!) output, ScalarType? output_dtype=None, bool use_tvm_ffi=True) -> ()", products.cute_dsl_fp8_bmm_blackwell),
    (
        "fp8_swap_ab_gemm(Tensor input, Tensor weight, Tensor weight_scale, ScalarType? output_dtype=None, bool disable_ue8m0_cast=False, "
        "int tune_max_num_tokens=4096) -> Tensor",
        products.fp8_swap_ab_gemm,
    ),
    (f"fp4_gemm({FOUR}, int fp4GemmType, ScalarType? out_dtype=None) -> Tensor", products.fp4_gemm),
    (f"fp4_bmm({FOUR}, int fp4GemmType, ScalarType? out_dtype=None) -> Tensor", products.fp4_gemm),
    (f"fp4_gemm_trtllmgen({FOUR}, bool sfUseUE8M0=False, ScalarType? out_dtype=None) -> Tensor", products.fp4_gemm_trtllmgen),
    *(
        (f"{name}(Tensor act_fp4, Tensor weight, Tensor act_sf, Tensor weight_scale, Tensor alpha, ScalarType output_dtype, {BUFFERS}{rest}) -> Tensor", products.nvfp4_gemm)
        for name, rest in (("nvfp4_gemm", ", str allowed_backends='cutlass,cublaslt,cuda_core'"), ("nvfp4_gemm_cutlass", ""), ("nvfp4_gemm_cublaslt", ""))
    ),
    (
        "mxfp8_mxfp8_gemm(Tensor act, Tensor actScale, Tensor weight, Tensor weightScale, Tensor globalScale, ScalarType? out_dtype=None) -> Tensor",
        products.mxfp8_mxfp8_gemm,
    ),
    (f"cublas_mm({SIXTEEN}, {BUFFERS}) -> Tensor", products.cublas_mm),
    (f"dsv3_router_gemm_op({SIXTEEN}) -> Tensor", products.dsv3_router_gemm_op),
    (f"dsv3_fused_a_gemm_op({SIXTEEN}) -> Tensor", products.dsv3_fused_a_gemm_op),
    *(
        (f"{name}(Tensor mat_a, Tensor mat_b, Tensor scale_a, Tensor scale_b, Tensor? bias=None, ScalarType? out_dtype=None, {BUFFERS}) -> Tensor", products.cublas_scaled_mm)
        for name in ("cublas_scaled_mm", "cuda_scaled_mm", "cutlass_scaled_mm")
    ),
    ("noaux_tc_op(Tensor scores, Tensor bias, int n_group, int topk_group, int topk, float routed_scaling_factor) -> (Tensor, Tensor)", routes.noaux_tc_op),
    ("renorm_moe_routing_op(Tensor router_logits, SymInt topk, ScalarType? output_dtype=None) -> (Tensor, Tensor)", routes.renorm_moe_routing_op),
    ("default_moe_routing_op(Tensor router_logits, SymInt topk, ScalarType? output_dtype=None) -> (Tensor, Tensor)", routes.default_moe_routing_op),
    ("indexer_topk_prefill(Tensor logits, Tensor row_starts, Tensor row_ends, Tensor(a!) indices, int index_topk=2048) -> ()", routes.indexer_topk_prefill),
    (
        "indexer_topk_decode(Tensor logits, Tensor seq_lens, Tensor(a!) indices, int next_n, int index_topk=2048, Tensor? pre_idx=None, "
        "Tensor? heuristic_scratch=None, int compress_ratio=1, Tensor? radix_aux_indices=None, Tensor? radix_aux_logits=None) -> ()",
        routes.indexer_topk_decode,
    ),
    (
        "moe_sort(Tensor token_selected_experts, Tensor token_final_scales, int num_experts, int top_k, int local_expert_offset, int local_num_experts, "
        "int tile_tokens_dim) -> Tensor[]",
        routes.moe_sort,
    ),
    ("moe_unpermute(Tensor permuted_input, Tensor expanded_idx_to_permuted_idx, Tensor topk_scales) -> Tensor", routes.moe_unpermute),
    (
        "moe_unpermute_inplace(Tensor permuted_input, Tensor(a!) output, Tensor expanded_idx_to_permuted_idx, Tensor topk_scales) -> ()",
        routes.moe_unpermute_inplace,
    ),
    (
        f"fp8_block_scale_moe_runner(Tensor? routing_logits, Tensor? routing_bias, Tensor hidden_states, Tensor hidden_states_scale, {WEIGHTS}, {EXPERTS}, "
        "Tensor? topk_weights=None, Tensor? topk_ids=None, int act_type=0, Tensor? gemm1_clamp_limit=None, Tensor? output=None, "
        "int tune_max_num_tokens=8192, bool use_dp=False) -> Tensor",
        routes.fp8_block_scale_moe_runner,
    ),
)

TENSORRT_LLM: tuple[tuple[str, Callable[..., Any]], ...] = (
    ("quantize_e4m3_per_tensor(Tensor input) -> (Tensor, Tensor)", quantizers.quantize_e4m3_per_tensor),
    ("quantize_e4m3_activation(Tensor input) -> (Tensor, Tensor)", quantizers.quantize_e4m3_activation),
    ("static_quantize_e4m3_per_tensor(Tensor input, Tensor scale) -> (Tensor, Tensor)", quantizers.static_quantize_e4m3_per_tensor),
    ("dequantize_mxe4m3_host(Tensor input, Tensor scale, bool is_sf_swizzled_layout=True) -> Tensor", quantizers.dequantize_mxe4m3_host),
    (
        "e2m1_and_ufp8sf_scale_to_float_v2(Tensor e2m1, Tensor scales, Tensor? global_scale, int sf_vec_size, int ufp8_type=1, "
        "bool is_sf_swizzled_layout=True) -> Tensor",
        quantizers.e2m1_and_ufp8sf_scale_to_float_v2,
    ),
)

OPERATORS = {
    space: tuple((schema, operators.refusing(operators.name_of(schema), run)) for schema, run in listed)
    for space, listed in (("trtllm", TRTLLM), ("tensorrt_llm", TENSORRT_LLM))
}


def names() -> list[str]:
    """The operators that are here, as torch.ops has them."""
    return operators.names(OPERATORS)


def define() -> None:
    """Once in a process; an operator that is registered already is left alone."""
    operators.define(OPERATORS)
