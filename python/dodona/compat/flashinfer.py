"""FlashInfer's functions on CPU tensors; see dodona.compat. Recipes are those of the dialect `flashinfer`."""

from __future__ import annotations

import enum
import math
from contextlib import contextmanager
from dataclasses import dataclass
from types import FunctionType, SimpleNamespace
from typing import Any, Callable, Iterator

from . import _blockscale as blockscale
from . import _compositions as compositions
from . import _draws as chains
from . import _layouts as layouts
from . import _logits_pipe as logits_pipe
from . import _mx as mx
from . import _nvfp4_caches as nvfp4_caches
from . import _paged_wrappers as paged_wrappers
from . import _pages as pages
from . import _products as products
from . import _routes as routes
from . import _selection as selection
from . import _utilities as utilities
from ._adapt import Op, named, refuse
from ._collectives import trtllm_allreduce_fusion
from ._hooks import arrays, attention, draws, experts, orders, quantized
from ._hooks.attention import counter_bytes
from ._mla_wrapper import BatchMLAPagedAttentionWrapper
from ._packages import Later, Package, in_place_of
from ._ragged_wrapper import BatchPrefillWithRaggedKVCacheWrapper, single_decode_with_kv_cache, single_prefill_with_kv_cache


def device_support_pdl(device: object) -> bool:
    """As get_compute_capability: a B200 does, and callers hand this on where it means more than how kernels are launched."""
    return True


def get_compute_capability(device: object) -> tuple[int, int]:
    """Of data-centre Blackwell, for which most of the functions here are written; those of Hopper are here too."""
    return 10, 0


def here(device: object) -> bool:
    """Kernels of Hopper and of data-centre Blackwell are here, whatever the machine."""
    return True


def not_here(*machine: object) -> bool:
    """Kernels of the other Blackwells are not, and no compiler for GPUs."""
    return False


GENERATIONS = {
    "sm90a": here, "sm100a": here, "sm100f": here, "sm110a": not_here, "sm120a": not_here, "sm120f": not_here, "sm121a": not_here, "sm12x": not_here
}  # fmt: skip


# Other ways to the same kernels, which are compiled on the machine.
NOT_HERE = (
    "cute_dsl.utils.is_cute_dsl_available", "cute_dsl.utils.is_cute_dsl_arch_supported", "cutile.is_cuda_tile_available",
    "cutile.cutile_common.is_cuda_tile_available",
)  # fmt: skip


def get_device_sm_count(device: object) -> int:
    """As get_compute_capability: a B200's."""
    return 148


def has_flashinfer_jit_cache() -> bool:
    """Nothing has to be compiled before it runs."""
    return True


def available_backends() -> list[str]:
    """Of moe_ep, whose fleets need libraries that no CPU has."""
    return []


@dataclass(frozen=True)
class MLAHeadDimensions:
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    kv_lora_rank: int


@dataclass(frozen=True)
class MLALayerDimensions:
    head_dimensions: MLAHeadDimensions
    num_heads: int


deepseek_mla_dimensions = MLAHeadDimensions(128, 64, 128, 512)
smaller_mla_dimensions = MLAHeadDimensions(64, 64, 128, 256)
MLA_DIMENSIONS = {
    "MLAHeadDimensions": MLAHeadDimensions,
    "MLALayerDimensions": MLALayerDimensions,
    "deepseek_mla_dimensions": deepseek_mla_dimensions,
    "smaller_mla_dimensions": smaller_mla_dimensions,
    "supported_mla_layer_dimensions": [
        MLALayerDimensions(deepseek_mla_dimensions, 128),
        MLALayerDimensions(deepseek_mla_dimensions, 64),
        MLALayerDimensions(smaller_mla_dimensions, 32),
    ],
}


GATED = ("Swiglu", "Geglu", "SwigluBias", "SwigluStep", "GegluTanh", "Situ")


class _Activation(enum.IntEnum):
    @property
    def is_gated(self) -> bool:
        """Whether it takes a gate beside a value."""
        return self.name in GATED


def activations() -> type:
    """By upstream's names and numbers."""
    return _Activation("ActivationType", list(PACKAGE.record.find("flashinfer.tllm_enums", "ActivationType")[2]["enum"].items()))  # type: ignore[call-overload]


def normalize_activation_type(activation_type: Any) -> Any:
    """The member, for itself or its number."""
    try:
        return PACKAGE.attribute("flashinfer.tllm_enums", "ActivationType")(activation_type)
    except ValueError:
        raise refuse("normalize_activation_type", f"is {activation_type!r}, expected an ActivationType", argument="activation_type") from None


def is_gated_activation(activation_type: Any) -> bool:
    """Whether it takes a gate beside a value."""
    return normalize_activation_type(activation_type).is_gated


def ceil_div(x: int, y: int) -> int:
    return -(-x // y)


def round_up(x: int, y: int) -> int:
    return ceil_div(x, y) * y


def get_trtllm_gen_multi_ctas_kv_counter_bytes(batch_size: int, num_qo_heads: int, sm_count: int) -> int:
    """Of upstream's scratch memory: a word for each head or multiprocessor."""
    return counter_bytes(batch_size, num_qo_heads, sm_count)


def nvfp4_e4m3_max(nvfp4_4over6_config: Any) -> float:
    """The largest scale of a block; other ones go with quantizers that are not here."""
    return 448.0 if nvfp4_4over6_config is None else float(nvfp4_4over6_config.e4m3_max)


def shuffle_matrix_sf_a(input_tensor: Any, epilogue_tile_m: int, num_elts_per_sf: int = 16) -> Any:
    """Scales in the order of shuffle_matrix_a's rows, then in tiles of 128 x 4."""
    shuffled = input_tensor[layouts.get_shuffle_matrix_sf_a_row_indices(input_tensor, epilogue_tile_m, num_elts_per_sf)]
    return PACKAGE.adapter("block_scale_interleave").function(shuffled)


def get_fp4_quantization_module(backend: str = "100") -> Any:
    """What upstream would compile, of which its tests call this one."""
    return SimpleNamespace(block_scale_interleave_sm100=PACKAGE.adapter("block_scale_interleave").function)


def nvfp4_batched_quantize(a: Any, a_global_sf: Any, sf_vec_size: int = 16) -> tuple[Any, Any]:
    """Each matrix of a batch as fp4_quantize has it: codes [B, M, K/2], and tiled scales, flat."""
    parts = [PACKAGE.adapter("fp4_quantize").function(matrix, a_global_sf, sf_vec_size, False, True) for matrix in a]
    if not parts:
        raise refuse("nvfp4_batched_quantize", "is empty, expected [B, M, K]", argument="a", code="bad_shape")
    return arrays.stacked([codes for codes, _ in parts]), arrays.stacked([scales.reshape(-1) for _, scales in parts])


def under(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function by another name."""
    made = FunctionType(function.__code__, function.__globals__, name, function.__defaults__, function.__closure__)
    made.__doc__ = function.__doc__
    return made


def as_adapted(name: str) -> Callable[..., Any]:
    """The adapter of this name."""
    return lambda *args, **kwargs: PACKAGE.adapter(name).function(*args, **kwargs)


@contextmanager
def autotune(tune_mode: bool = True) -> Iterator[None]:
    """Upstream times its kernels' tactics inside the block. There is one result here, whatever is fastest."""
    yield


MLA_ROPE = Op("mla_rope_quantize_fp8", around=attention.heads_of_keys)

# The kernels of sampling are those that sgl_kernel builds.
DRAWN = ("generator", "check_nan", "seed", "offset", "return_valid")

GROUPS = {"a": "input_tensor", "a_global_sf": "input_global_scale"}  # sgl-kernel's names for the same kernel's arguments

NO_BOUND = {"top_p": math.inf}  # the first token that is drawn is the sample

ACTIVATED = {"takes": ("activation_type",), "makes": ("gate_activation", "gated")}

FUNCTIONS = {
    "apply_rope_with_cos_sin_cache": Op("apply_rope_with_cos_sin_cache_inplace", around=attention.rotated_copies),
    "block_scale_interleave": Op("nvfp4_block_scale_interleave"),
    "bmm_fp8": Op(only={"backend": ("cublas", "cudnn", "cutlass", "auto")}),
    "concat_mla_k": Op(),
    "cutlass_fused_moe": Op(
        only={
            "cluster_size": (1,),
            "cluster_rank": (0,),
            "enable_alltoall": (False,),
            "use_w4_group_scaling": (False,),
            "use_mxfp8_act_scaling": (False, True),
            "min_latency_mode": (False,),
        },
        takes=("quant_scales", "activation_type", "swizzled_input_sf", "use_mxfp8_act_scaling"),
        makes=(*experts.QUANT_SCALES[6], "gate_activation", "gated", "limited"),
        around=experts.cutlass_moe,
        newer=orders.newer_where(lambda value: isinstance(value, bool)),  # use_packed_weights before tune_max_num_tokens
    ),
    "fp4_quantize": Op(around=quantized.fp4_rows, newer=orders.newer_fp4_quantize),
    "gelu_and_mul": Op(before=arrays.rows_of_16_bytes("gelu_and_mul")),
    "gelu_tanh_and_mul": Op(before=arrays.rows_of_16_bytes("gelu_tanh_and_mul")),
    "gemma_fused_add_rmsnorm": Op("fused_add_rmsnorm", sets={"weight_bias": 1.0}),
    "gemma_rmsnorm": Op("rmsnorm", sets={"weight_bias": 1.0}),
    "merge_state": Op(before=attention.lse_in_f32),
    "merge_state_in_place": Op(
        "merge_state",
        names={"v": "v_a", "s": "s_a", "v_other": "v_b", "s_other": "s_b"},
        takes=("mask",),
        writes={"v": "v_merged", "s": "s_merged"},
        around=attention.first_state_in_place,
    ),
    "merge_states": Op(before=attention.states_in_f32),
    "min_p_sampling_from_probs": Op(takes=DRAWN, around=draws.seeded("min_p_sampling_from_probs", zeros_are_drawn=True, min_p="float32")),
    "mla_rope_quantize_fp8": MLA_ROPE,
    "mm_fp4": Op(only={"backend": ("cudnn", "cutlass", "auto", "trtllm", "cute-dsl")}, takes=("backend",), before=quantized.fp4_product),
    "mxfp4_quantize": Op(takes=("sfLayout",), makes=("is_sf_swizzled_layout", "is_sf_8x4_layout"), around=quantized.named_layout_of_powers),
    "mxfp8_quantize": Op(takes=("sf_swizzle_layout",), around=quantized.flat_scales),
    "nvfp4_quantize": Op(
        only={"sf_vec_size": (16,)},
        takes=("sfLayout",),
        makes=("is_sf_swizzled_layout", "is_sf_8x4_layout"),
        around=quantized.named_layout,
    ),
    "rope_quantize_fp8": MLA_ROPE,
    "sampling_from_probs": Op("top_p_sampling_from_probs", takes=DRAWN, sets=NO_BOUND, around=draws.seeded("sampling_from_probs")),
    "scaled_fp4_grouped_quantize": Op("scaled_fp4_grouped_quant", names=GROUPS, around=quantized.views_of_groups),
    "silu_and_mul": Op(before=arrays.rows_of_16_bytes("silu_and_mul")),
    "silu_and_mul_scaled_nvfp4_experts_quantize": Op("silu_and_mul_scaled_fp4_grouped_quant", names=GROUPS, around=quantized.views_of_groups),
    "softmax": Op(before=draws.thresholds(temperature="float32")),
    "top_k_mask_logits": Op(around=draws.type_kept("top_k_mask_logits", "logits", top_k="int32")),
    "top_k_renorm_probs": Op("top_k_renorm_prob", around=draws.type_kept("top_k_renorm_probs", "probs", top_k="int32")),
    "top_k_sampling_from_probs": Op(
        "top_k_top_p_sampling_from_probs",
        takes=DRAWN,
        sets={**NO_BOUND, "filter_apply_order": "joint"},
        around=draws.counts_of_output_rows(draws.seeded("top_k_sampling_from_probs", top_k="int32")),
    ),
    "top_k_top_p_sampling_from_probs": Op(takes=DRAWN, around=draws.seeded("top_k_top_p_sampling_from_probs", top_k="int32", top_p="float32")),
    "top_p_renorm_probs": Op(
        "top_p_renorm_prob",
        only={"is_deterministic": (False, True)},  # one result either way
        around=draws.type_kept("top_p_renorm_probs", "probs", top_p="float32"),
    ),
    "top_p_sampling_from_probs": Op(takes=DRAWN, around=draws.seeded("top_p_sampling_from_probs", top_p="float32")),
    "trtllm_batch_decode_with_kv_cache_mla": Op(
        only={"sinks": (None,), "backend": ("auto", "trtllm-gen"), "use_fp16_softmax": (None, False)},
        beside={"sparse_mla_top_k": 0, **attention.NOT_READ},
        newer=orders.newer_where(orders.a_number),
        takes=("cum_seq_lens_q", "max_q_len", "multi_ctas_kv_counter_buffer", "skip_softmax_threshold_scale_factor", "uses_shared_paged_kv_idx"),
        before=attention.scales_as_numbers("trtllm_batch_decode_with_kv_cache_mla", attention.room_to_count),
        around=attention.of_any_rank,
    ),
    "trtllm_bf16_moe": Op(**ACTIVATED, before=experts.trtllm_activation("trtllm_bf16_moe", experts.moe_by_number), newer=orders.newer_bf16_moe),
    "trtllm_fp4_block_scale_moe": Op(
        takes=("gated_act_type", *ACTIVATED["takes"]),
        makes=ACTIVATED["makes"],
        around=experts.trtllm_activation("trtllm_fp4_block_scale_moe", experts.moe_in_a_list),
        newer=orders.newer_moe,
    ),
    "trtllm_fp8_block_scale_moe": Op(before=experts.moe_with_transposed_scales, newer=orders.newer_moe),
    "trtllm_fp8_per_tensor_scale_moe": Op(
        **ACTIVATED, before=experts.trtllm_activation("trtllm_fp8_per_tensor_scale_moe", experts.moe_by_number), newer=orders.newer_moe
    ),
    "trtllm_ragged_attention_deepseek": Op(only={"attention_sinks": (None,)}, before=attention.ragged_lengths, newer=orders.newer_ragged),
    "xqa_batch_decode_with_kv_cache_mla": Op(
        only={"sinks": (None,)}, before=attention.scales_as_numbers("xqa_batch_decode_with_kv_cache_mla"), around=attention.one_query_token
    ),
}

ROUTED = {"takes": ("topk_ids",), "makes": ("given_ids", "given_weights")}
ACTIVATED_ROUTED = {part: (*ROUTED[part], *ACTIVATED[part]) for part in ROUTED}
FUNCTIONS |= {
    "trtllm_bf16_routed_moe": Op(
        "trtllm_bf16_moe",
        **ACTIVATED_ROUTED,
        before=experts.given_routes("trtllm_bf16_routed_moe", experts.trtllm_activation("trtllm_bf16_routed_moe", experts.moe_by_number)),
    ),
    "trtllm_fp4_block_scale_routed_moe": Op(
        "trtllm_fp4_block_scale_moe",
        takes=("gated_act_type", *ACTIVATED_ROUTED["takes"]),
        makes=ACTIVATED_ROUTED["makes"],
        before=experts.given_routes("trtllm_fp4_block_scale_routed_moe"),
        around=experts.trtllm_activation("trtllm_fp4_block_scale_routed_moe", experts.moe_in_a_list),
        newer=orders.newer_moe,
    ),
    "trtllm_fp8_block_scale_routed_moe": Op(
        "trtllm_fp8_block_scale_moe",
        **ROUTED,
        before=experts.given_routes("trtllm_fp8_block_scale_routed_moe", experts.moe_with_transposed_scales),
    ),
    "trtllm_fp8_per_tensor_scale_routed_moe": Op(
        "trtllm_fp8_per_tensor_scale_moe",
        **ACTIVATED_ROUTED,
        before=experts.given_routes(
            "trtllm_fp8_per_tensor_scale_routed_moe", experts.trtllm_activation("trtllm_fp8_per_tensor_scale_routed_moe", experts.moe_by_number)
        ),
    ),
}

# The factors and the bound with which upstream's gated activations are the plain ones; the bound is the greatest fp32.
ACTIVATION_DEFAULTS = {
    "SWIGLU_ALPHA": 1.0,
    "SWIGLU_BETA": 0.0,
    "SWIGLU_LIMIT": (2.0 - 2.0**-23) * 2.0**127,
    "SITU_BETA": 4.0,
    "SITU_LINEAR_BETA": 25.0,
}

PACKAGE = Package(
    "flashinfer",
    FUNCTIONS,
    torch_lines={},
    own={
        "flashinfer.mla.BatchMLAPagedAttentionWrapper": BatchMLAPagedAttentionWrapper,
        "flashinfer.prefill.BatchPrefillWithRaggedKVCacheWrapper": BatchPrefillWithRaggedKVCacheWrapper,
        "flashinfer.prefill.single_prefill_with_kv_cache": single_prefill_with_kv_cache,
        "flashinfer.decode.single_decode_with_kv_cache": single_decode_with_kv_cache,
        "flashinfer.autotuner.autotune": autotune,
        "flashinfer.gemm.gemm_bf16_fp4._CUDNN_BF16_FP4_MIN_BACKEND_VERSION": 92301,  # which tests compare a library's version with
        **{f"flashinfer.logits_processor.{module}.{name}": made for module, names in logits_pipe.PLACES.items() for name, made in names.items()},
        "flashinfer.fused_moe.core._maybe_get_cached_w2_permute_indices": layouts.get_w2_permute_indices_with_cache,
        "flashinfer.comm.trtllm_ar.trtllm_allreduce_fusion": trtllm_allreduce_fusion,
        "flashinfer.fp4_quantization.nvfp4_batched_quantize": nvfp4_batched_quantize,
        "flashinfer.fp4_quantization.shuffle_matrix_sf_a": shuffle_matrix_sf_a,
        "flashinfer.fp4_quantization.get_fp4_quantization_module": get_fp4_quantization_module,
        **{f"flashinfer.{place}": under(place.rpartition(".")[2], not_here) for place in NOT_HERE},
        "flashinfer.rope.rope_quantize_fp8_append_paged_kv_cache": pages.rope_into_pages(lambda: PACKAGE.adapter("rope_quantize_fp8").function),
        "flashinfer.triton.cascade.variable_length_merge_states": named("variable_length_merge_states")(attention.variable_length_merge_states),
        **{f"flashinfer.triton.cascade.{name}": under(name, as_adapted(name)) for name in ("merge_state", "merge_state_in_place", "merge_states")},
        "flashinfer.sampling.chain_speculative_sampling": chains.chain_speculative_sampling,
        "flashinfer.sampling.sampling_from_logits": chains.from_logits(lambda name: PACKAGE.adapter(name).function),
        "flashinfer.sampling.top_k_top_p_sampling_from_logits": draws.from_logits(lambda name: PACKAGE.adapter(name).function),
        "flashinfer.quantization.nvfp4_quantization_utils.nvfp4_e4m3_max": nvfp4_e4m3_max,
        "flashinfer.utils.get_device_sm_count": get_device_sm_count,
        "flashinfer.utils.get_trtllm_gen_multi_ctas_kv_counter_bytes": get_trtllm_gen_multi_ctas_kv_counter_bytes,
        **{f"flashinfer.mla._core.{name}": made for name, made in MLA_DIMENSIONS.items()},
        "flashinfer.moe_ep.available_backends": available_backends,
        "flashinfer.fused_moe.core.ActivationType": Later(activations),
        **{f"flashinfer.tllm_enums.{made.__name__}": made for made in (is_gated_activation, normalize_activation_type)},
        **{f"flashinfer.tllm_enums.DEFAULT_{name}": value for name, value in ACTIVATION_DEFAULTS.items()},
        "flashinfer.jit.env.has_flashinfer_jit_cache": has_flashinfer_jit_cache,
        **{f"flashinfer.utils.{made.__name__}": made for made in (ceil_div, device_support_pdl, get_compute_capability, round_up)},
        **{f"flashinfer.utils.is_{name}_supported": under(f"is_{name}_supported", answer) for name, answer in GENERATIONS.items()},
        **{f"{module}.{made.__name__}": made for places in (layouts.PLACES, blockscale.PLACES, compositions.PLACES, mx.PLACES, nvfp4_caches.PLACES, pages.PLACES, paged_wrappers.PLACES, products.PLACES, routes.PLACES, selection.PLACES, utilities.PLACES) for module, functions in places.items() for made in functions},
    },
    # How a kernel is launched, and what it works in.
    ignored=frozenset(
        {
            "enable_pdl", "is_var_seq", "kv_seq_lens_cpu", "multi_ctas_kv_counter_buffer", "profile_ids", "q_seq_lens_cpu", "tune_max_num_tokens",
            "use_fused_finalize", "workspace_buffer",
        }  # fmt: skip
    ),
    # The wrappers' runs, one way to call trtllm_batch_decode_with_kv_cache_mla, and the terms of all ranks together.
    within=frozenset(
        {"batch_mla_paged_attention", "batch_prefill_with_ragged_kv_cache", "trtllm_batch_decode_sparse_mla", "trtllm_allreduce_fusion"}
    ),
)

PACKAGE.own.update(utilities.specs(PACKAGE.record))
PACKAGE.record.modules["flashinfer.triton.cascade"] = {}  # the stored names leave Triton's modules out

__getattr__, __dir__ = in_place_of(PACKAGE, globals())
