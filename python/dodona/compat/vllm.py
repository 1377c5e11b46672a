"""vLLM's custom operators on CPU tensors, `vllm._custom_ops`; see dodona.compat. It stands in for that module alone: compat.install() leaves vllm out,
and compat.install("vllm") makes a package of it where vLLM is not."""

from __future__ import annotations

from ._adapt import Op
from ._hooks import quantized, vllm_experts, vllm_fused_quant, vllm_routers, vllm_sparse
from ._hooks import vllm as hooks
from ._packages import Package, in_place_of

ROUNDED = {"weight_order": "rounded"}  # newer versions multiply by the weight before they round: fused

FUNCTIONS = {
    "awq_dequantize": Op(names={"zeros": "qzeros"}),
    "cutlass_fp4_moe_mm": Op(
        "cutlass_fp4_group_mm",
        names={
            "out_tensors": "out", "a_tensors": "a_fp4", "b_tensors": "b_fp4", "a_scales": "a_blockscale", "b_scales": "b_blockscale",
            "sf_offsets": "blockscale_offsets",
        },
    ),
    "cutlass_scaled_fp4_mm": Op(),
    "dsv3_fused_a_gemm": Op(),
    "fused_add_rms_norm": Op(
        "fused_add_rmsnorm", names={"epsilon": "eps"}, makes=("kernel", "weight_order"), sets={"normalize": "rounded"}, beside=ROUNDED, before=hooks.block_of_norm
    ),
    "get_cutlass_moe_mm_data": Op("prepare_moe_input", before=hooks.straight_problems),
    "merge_attn_states": Op(
        "merge_state_v2",
        names={"prefix_output": "v_a", "suffix_output": "v_b", "output": "v_merged"},
        takes=("prefix_lse", "suffix_lse", "output_lse"),
        makes=("s_a", "s_b", "s_merged"),
        around=hooks.merged,
    ),
    "moe_align_block_size": Op(takes=("expert_map",), makes=("cumsum_buffer", "pad_sorted_token_ids"), around=hooks.aligned),
    "moe_sum": Op(names={"input": "input_tensor", "output": "output_tensor"}),
    "rms_norm": Op("rmsnorm", names={"epsilon": "eps"}, makes=("kernel", "weight_order"), beside=ROUNDED, before=hooks.order_of_norm("rms_norm")),
    "rotary_embedding": Op(),
    "scaled_fp4_experts_quant": Op(),
    "scaled_fp4_quant": Op(takes=("is_sf_swizzled_layout", "backend", "padded_n"), around=quantized.rows_of_a_layout),
    "shuffle_rows": Op(),
    "sm100_cutlass_mla_decode": Op("cutlass_mla_decode", names={"scale": "sm_scale"}, takes=("lse",), before=hooks.without_lse),
    "sm100_cutlass_mla_get_workspace_size": Op("cutlass_mla_get_workspace_size"),
    "topk_softmax": Op(takes=("token_expert_indices", "e_score_correction_bias"), around=hooks.chosen),
}  # fmt: skip

OWN = (
    *hooks.COPIES, *vllm_routers.ROUTERS, *vllm_sparse.SPARSE, *vllm_fused_quant.QUANTIZED, *vllm_experts.EXPERTS, hooks.scaled_fp8_quant, hooks.cutlass_scaled_mm,
)  # fmt: skip

PACKAGE = Package(
    "vllm",
    FUNCTIONS,
    torch_lines={},
    own={
        **{f"vllm._custom_ops.{made.__name__}": made for made in OWN},
        **{f"vllm._custom_ops.{name}": made for name, made in hooks.ASKED.items()},
        "vllm.model_executor.layers.quantization.utils.fp8_utils.per_token_group_quant_fp8": hooks.per_token_group_quant_fp8,
    },
    # How a kernel is launched, and what it works in.
    ignored=frozenset({"enable_pdl", "split_k_iters", "thx", "thy", "workspace"}),
)

__getattr__, __dir__ = in_place_of(PACKAGE, globals())
