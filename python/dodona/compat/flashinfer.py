"""FlashInfer's functions on CPU tensors; see dodona.compat. Recipes are those of the dialect `flashinfer`."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Iterator

from . import _hooks as hooks
from ._adapt import Op
from ._collectives import trtllm_allreduce_fusion
from ._mla_wrapper import BatchMLAPagedAttentionWrapper
from ._packages import Package, in_place_of
from ._ragged_wrapper import BatchPrefillWithRaggedKVCacheWrapper


def device_support_pdl(device: object) -> bool:
    """A CPU launches no kernels."""
    return False


def is_sm90a_supported(device: object) -> bool:
    """Hopper's kernels are here, whatever the machine."""
    return True


def is_sm100a_supported(device: object) -> bool:
    """So are those of data-centre Blackwell."""
    return True


@contextmanager
def autotune(tune_mode: bool = True) -> Iterator[None]:
    """Upstream times its kernels' tactics inside the block. There is one result here, whatever is fastest."""
    yield


MLA_ROPE = Op("mla_rope_quantize_fp8", around=hooks.heads_of_keys)

GROUPS = {"a": "input_tensor", "a_global_sf": "input_global_scale"}  # sgl-kernel's names for the same kernel's arguments

FUNCTIONS = {
    "block_scale_interleave": Op("nvfp4_block_scale_interleave"),
    "bmm_fp8": Op(only={"backend": ("cublas", "cudnn", "cutlass", "auto")}),
    "cutlass_fused_moe": Op(
        only={
            "cluster_size": (1,),
            "cluster_rank": (0,),
            "enable_alltoall": (False,),
            "use_w4_group_scaling": (False,),
            "use_mxfp8_act_scaling": (False,),
            "min_latency_mode": (False,),
        },
        takes=("quant_scales", "activation_type"),
        makes=hooks.QUANT_SCALES[6],
        around=hooks.cutlass_moe,
    ),
    "fp4_quantize": Op(around=hooks.fp4_rows),
    "gelu_and_mul": Op(before=hooks.rows_of_16_bytes("gelu_and_mul")),
    "gelu_tanh_and_mul": Op(before=hooks.rows_of_16_bytes("gelu_tanh_and_mul")),
    "merge_state": Op(before=hooks.lse_in_f32),
    "merge_state_in_place": Op(
        "merge_state",
        names={"v": "v_a", "s": "s_a", "v_other": "v_b", "s_other": "s_b"},
        takes=("mask",),
        writes={"v": "v_merged", "s": "s_merged"},
        around=hooks.first_state_in_place,
    ),
    "mla_rope_quantize_fp8": MLA_ROPE,
    "mm_fp4": Op(only={"backend": ("cudnn", "cutlass", "auto")}, before=hooks.scales_in_tiles),
    "mxfp4_quantize": Op(around=hooks.scales_by_blocks),
    "mxfp8_quantize": Op(around=hooks.flat_scales),
    "nvfp4_quantize": Op(
        only={"sf_vec_size": (16,)},
        takes=("sfLayout",),
        makes=("is_sf_swizzled_layout", "is_sf_8x4_layout"),
        around=hooks.named_layout,
    ),
    "rope_quantize_fp8": MLA_ROPE,
    "scaled_fp4_grouped_quantize": Op("scaled_fp4_grouped_quant", names=GROUPS, around=hooks.views_of_groups),
    "silu_and_mul": Op(before=hooks.rows_of_16_bytes("silu_and_mul")),
    "silu_and_mul_scaled_nvfp4_experts_quantize": Op("silu_and_mul_scaled_fp4_grouped_quant", names=GROUPS, around=hooks.views_of_groups),
    "softmax": Op(before=hooks.thresholds(temperature="float32")),
    "trtllm_batch_decode_with_kv_cache_mla": Op(
        only={"sinks": (None,), "backend": ("auto", "trtllm-gen")},
        before=hooks.scales_as_numbers("trtllm_batch_decode_with_kv_cache_mla"),
        around=hooks.one_query_token,
    ),
    "trtllm_bf16_moe": Op(before=hooks.moe_by_number),
    "trtllm_fp4_block_scale_moe": Op(around=hooks.moe_in_a_list),
    "trtllm_fp8_block_scale_moe": Op(before=hooks.moe_by_number),
    "trtllm_fp8_per_tensor_scale_moe": Op(before=hooks.moe_by_number),
    "trtllm_ragged_attention_deepseek": Op(only={"attention_sinks": (None,)}, before=hooks.scales_as_numbers("trtllm_ragged_attention_deepseek")),
    "xqa_batch_decode_with_kv_cache_mla": Op(
        only={"sinks": (None,)}, before=hooks.scales_as_numbers("xqa_batch_decode_with_kv_cache_mla"), around=hooks.one_query_token
    ),
}

PACKAGE = Package(
    "flashinfer",
    FUNCTIONS,
    torch_lines={},
    own={
        "flashinfer.mla.BatchMLAPagedAttentionWrapper": BatchMLAPagedAttentionWrapper,
        "flashinfer.prefill.BatchPrefillWithRaggedKVCacheWrapper": BatchPrefillWithRaggedKVCacheWrapper,
        "flashinfer.autotuner.autotune": autotune,
        "flashinfer.comm.trtllm_ar.trtllm_allreduce_fusion": trtllm_allreduce_fusion,
        "flashinfer.utils.device_support_pdl": device_support_pdl,
        "flashinfer.utils.is_sm90a_supported": is_sm90a_supported,
        "flashinfer.utils.is_sm100a_supported": is_sm100a_supported,
    },
    # How a kernel is launched, and what it works in.
    ignored=frozenset({"enable_pdl", "tune_max_num_tokens", "workspace_buffer"}),
    # The wrappers' runs, one way to call trtllm_batch_decode_with_kv_cache_mla, and the terms of all ranks together.
    within=frozenset(
        {"batch_mla_paged_attention", "batch_prefill_with_ragged_kv_cache", "trtllm_batch_decode_sparse_mla", "trtllm_allreduce_fusion"}
    ),
)

__getattr__, __dir__ = in_place_of(PACKAGE, globals())
