"""DeepGEMM's functions on CPU tensors; see dodona.compat. Scales are fp32, or exponents in words: which of the two a GPU wants does not matter here."""

from __future__ import annotations

from typing import Any, Callable

from . import _deep_gemm as library
from ._adapt import Op
from ._hooks import deep_gemm as hooks
from ._hooks import deep_gemm_mx as mx
from ._hooks import deep_gemm_sums as sums
from ._packages import Package, in_place_of

RECIPE = ("recipe", "compiled_dims", "disable_ue8m0_cast")
HOW = (*RECIPE, "recipe_a", "recipe_b")
OURS = ("a", "b", "sfa", "sfb", "gran_n", "scale_ue8m0")
GROUPED = ("grouped_layout", "use_psum_layout", "ensure_zero_padding")

TURNS = {"nt": "", "nn": "b", "tn": "ab", "tt": "a"}  # what comes the other way than [M, K] and [N, K]


def in_bf16(name: str) -> Callable[[], Callable[..., Any]]:
    """DeepGEMM's product of bf16 of this name."""
    return lambda: BF16_GROUPS[name] if name in BF16_GROUPS else PACKAGE.adapter(name).function


def product(name: str, turn: str) -> Op:
    return Op("fp8_gemm_nt", takes=HOW, makes=OURS, around=mx.or_by(hooks.product(name, turn), name, in_bf16("bf16_gemm_nt"), turn, "c"))


def contiguous(name: str, turn: str) -> Op:
    takes = (*HOW, *GROUPED) if turn else (*HOW, *GROUPED, "expected_m_for_psum_layout")
    return Op("m_grouped_fp8_gemm_nt_contiguous", takes=takes, makes=(*OURS, "m_indices"), around=mx.or_by(hooks.contiguous_groups(name, turn), name, in_bf16("m_grouped_bf16_gemm_nt_contiguous"), turn, *GROUPED, used=mx.rows_of_groups))


def masked(name: str) -> Op:
    return Op("m_grouped_fp8_gemm_nt_masked", takes=HOW, makes=OURS, around=mx.or_by(hooks.masked_groups(name), name, in_bf16("m_grouped_bf16_gemm_nt_masked"), "", "masked_m", "expected_m", used=mx.rows_that_count))


def sixteen_bits(name: str, turn: str) -> Op:
    return Op("matmul_persistent", names={"d": "c"}, takes=("c", "compiled_dims"), sets={"kernel": "deep_gemm"}, around=hooks.sixteen_bits(name, turn, sums.sixteen_bits_in_fp32))


NAMED = {f"{kind}_gemm_{order}": turn for kind in ("fp8", "fp8_fp4") for order, turn in TURNS.items()}
FUNCTIONS = {
    **{name: product(name, turn) for name, turn in NAMED.items()},
    **{f"m_grouped_{kind}_gemm_{order}_contiguous": contiguous(f"m_grouped_{kind}_gemm_{order}_contiguous", TURNS[order]) for kind in ("fp8", "fp8_fp4") for order in ("nt", "nn")},
    **{f"m_grouped_{kind}_gemm_nt_masked": masked(f"m_grouped_{kind}_gemm_nt_masked") for kind in ("fp8", "fp8_fp4")},
    **{f"bf16_gemm_{order}": sixteen_bits(f"bf16_gemm_{order}", turn) for order, turn in TURNS.items()},
    "fp8_gemm_nt_skip_head_mid": Op("fp8_gemm_nt", takes=("head_splits", *RECIPE), makes=OURS, around=hooks.with_room_in_heads),
    "fp8_mqa_logits": Op(takes=("max_seqlen_k",), makes=("kv_sf",), around=hooks.logits_of_ranges("fp8_mqa_logits")),
    "fp8_fp4_mqa_logits": Op(
        "fp8_mqa_logits", takes=("max_seqlen_k", "logits_dtype"), makes=("kv_sf",), around=hooks.logits_of_ranges("fp8_fp4_mqa_logits", with_scales=True)
    ),
    "fp8_paged_mqa_logits": Op(takes=("kv_cache", "indices"), makes=("fused_kv_cache",), around=hooks.logits_of_pages("fp8_paged_mqa_logits")),
    "fp8_fp4_paged_mqa_logits": Op(
        "fp8_paged_mqa_logits",
        takes=("kv_cache", "indices", "logits_dtype"),
        makes=("fused_kv_cache",),
        around=hooks.logits_of_pages("fp8_fp4_paged_mqa_logits", with_scales=True),
    ),
}

BF16_GROUPS = {
    **{
        f"m_grouped_bf16_gemm_{order}_contiguous": hooks.grouped_sixteen_bits(
            f"m_grouped_bf16_gemm_{order}_contiguous", lambda order=order: PACKAGE.adapter(f"bf16_gemm_{order}").function, TURNS[order]
        )
        for order in ("nt", "nn")
    },
    "m_grouped_bf16_gemm_nt_masked": hooks.masked_sixteen_bits(lambda: PACKAGE.adapter("bf16_gemm_nt").function),
}

FP8_GROUPS = {name: sums.groups_of_k(name, lambda: PACKAGE.adapter("fp8_gemm_nt").function) for name in ("k_grouped_fp8_gemm_nt_contiguous", "k_grouped_fp8_gemm_tn_contiguous")}
SUMS = {
    **FP8_GROUPS,
    **{f"cublaslt_gemm_{order}": sums.cublaslt(f"cublaslt_gemm_{order}", turn) for order, turn in TURNS.items()},
    "einsum": sums.einsum_of(lambda: PACKAGE.adapter("bf16_gemm_nt").function),
    "fp8_einsum": sums.fp8_einsum_of(lambda: PACKAGE.adapter("fp8_gemm_nt").function),
}

FIRST = {  # of the versions before 2.0
    **{made.__name__: made for made in sums.first_names(
        lambda: PACKAGE.adapter("fp8_gemm_nt").function,
        lambda: PACKAGE.adapter("m_grouped_fp8_gemm_nt_contiguous").function,
        lambda: PACKAGE.adapter("m_grouped_fp8_gemm_nt_masked").function,
        FP8_GROUPS["k_grouped_fp8_gemm_nt_contiguous"],
    )},
    "get_col_major_tma_aligned_tensor": library.get_mn_major_tma_aligned_tensor,
    **{made.__name__: made for made in (library.bench, library.bench_kineto, library.calc_diff, library.count_bytes)},
}  # fmt: skip

FIRST_UTILS = {
    "ceil_div": library.ceil_div,
    **{name: library.SETTINGS[name] for name in ("set_num_sms", "get_num_sms")},
    "get_tma_aligned_size": library.get_tma_aligned_size,
    "get_col_major_tma_aligned_tensor": library.get_mn_major_tma_aligned_tensor,
    "get_m_alignment_for_contiguous_layout": library.SETTINGS["get_mk_alignment_for_contiguous_layout"],
}

PACKAGE = Package(
    "deep_gemm",
    FUNCTIONS,
    torch_lines={},
    own={
        **{f"deep_gemm._C.{name}": made for name, made in {**library.SETTINGS, **BF16_GROUPS, **SUMS}.items()},
        **{f"deep_gemm._C.{made.__name__}": made for made in (*library.LAYOUTS, hooks.get_paged_mqa_logits_metadata, sums.k_grouped_bf16_gemm_tn_contiguous, sums.get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor)},
        **{f"deep_gemm.utils.math.{made.__name__}": made for made in library.NUMBERS},
        **{f"deep_gemm.testing.{module}.{made.__name__}": made for module, functions in library.TESTING.items() for made in functions},
        # Of sgl-kernel's build alone.
        **{f"deep_gemm.{name}": library.SETTINGS[name] for name in ("set_compile_mode", "get_compile_mode")},
        **{f"deep_gemm.{name}": made for name, made in FIRST.items()},
        **{f"deep_gemm.jit_kernels.utils.{name}": made for name, made in FIRST_UTILS.items()},
    },
    ignored=frozenset(),
)

PACKAGE.record.modules.update({"deep_gemm.jit_kernels": {}, "deep_gemm.jit_kernels.utils": {}})

__getattr__, __dir__ = in_place_of(PACKAGE, globals())
