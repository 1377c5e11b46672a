"""The kernels that newer sglang compiles when they are first called, on the CPU: `install()` puts `load_jit` in the place of sglang's own, and its
wrappers then reach the ops here. A kernel that is not here says so when it is called."""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Callable, Optional

import numpy as np

from .._arrays import is_torch
from .._library import Error
from .._ops import function
from . import sgl_kernel
from ._adapt import NotOffered, as_refused, refuse
from ._hooks.arrays import bare, bytes_as, dense, dense_copy, like, type_of
from ._hooks.checks import of_shape, of_type, shape_of, writable
from ._layouts import as_given

# Where sglang defines load_jit, by version.
PLACES = ("sglang.jit_kernel.utils", "sglang.kernels.jit.utils.compile.loader")


class Module:
    """Stands for a compiled module: functions take the kernels' arguments by position."""

    def __init__(self, args: tuple, names: tuple) -> None:
        self.args = tuple(str(arg) for arg in args)  # what the kernel was made for: flags, sizes, types
        self.names = names

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("__"):
            raise AttributeError(name)
        made = KERNELS.get(name)
        if made is None and name in sgl_kernel.PACKAGE.offered_torch_ops():
            run = sgl_kernel.PACKAGE.torch_adapter(name).function
            return lambda *args: run(*args) and None
        if made is None:
            text = f"is not offered; dodona.compat.sglang_jit has {', '.join(sorted(KERNELS))}"
            raise refuse(f"{name} of {self.args[0] if self.args else 'sglang'}", text, kind=NotOffered, code="unsupported")

        def called(*args: Any) -> None:
            try:
                made(self, *args)
            except Error as error:
                raise as_refused(error, name) from None

        called.__name__ = called.__qualname__ = name
        return called

    def flag(self, at: int) -> bool:
        """A truth value among what the kernel was made for, behind its marker."""
        return self.args[1 + at].lower() == "true"


def load_jit(*args: Any, cuda_wrappers: Optional[list] = None, cpp_wrappers: Optional[list] = None, **how: Any) -> Module:
    """In the place of sglang's: nothing is compiled."""
    return Module(args, tuple(pair[0] for pair in (*(cuda_wrappers or ()), *(cpp_wrappers or ()))))


# ---- kernels whose arguments are in another order here ----


def _put(name: str, argument: str, target: Any, made: Any) -> None:
    of_shape(name, argument, target, tuple(bare(made).shape))
    writable(name, argument, target)
    bare(target)[...] = bare(made)


def _none(name: str, **given: Any) -> None:
    for argument, value in given.items():
        if value:
            raise refuse(name, f"is {value!r}, offered is none", kind=NotOffered, code="unsupported", argument=argument)


ACTIVATIONS = {"silu": "silu_and_mul", "gelu": "gelu_and_mul", "gelu_tanh": "gelu_tanh_and_mul"}


def _known(op_name: Any) -> str:
    if op_name not in ACTIVATIONS:
        raise refuse("run_activation", f"is {op_name!r}, expected {', '.join(ACTIVATIONS)}", argument="op_name")
    return op_name


def _activation(rounded: str) -> Callable[..., None]:
    def run(module: Module, input: Any, out: Any, op_name: str) -> None:
        function(ACTIVATIONS[_known(op_name)])(input, out=out, round_activation=rounded)

    return run


def _filtered(module: Module, input: Any, out: Any, expert_ids: Any, expert_step: int, op_name: str) -> None:
    """Rows of experts that are elsewhere, -1, stay as they are; `expert_step` rows after one another have one expert."""
    name = "run_activation_filtered"
    rows, width = shape_of(name, "input", input, 2)
    of_shape(name, "out", out, (rows, width // 2))
    of_type(name, "expert_ids", expert_ids, "i32")
    writable(name, "out", out)
    (count,) = shape_of(name, "expert_ids", expert_ids, 1)
    if expert_step < 1 or count * expert_step < rows:
        raise refuse(name, f"has {count} experts for {expert_step} rows each, expected {rows} rows", argument="expert_ids", code="bad_shape")
    there = np.flatnonzero(np.repeat(np.asarray(bare(expert_ids)), expert_step)[:rows] != -1)
    if len(there):
        at = as_given(there, bare(input))
        made = bare(function(ACTIVATIONS[_known(op_name)])(like(input, bare(input)[at])))
        bare(out)[at] = made if is_torch(made) else made.view(bare(out).dtype)


def _rmsnorm(order: str) -> Callable[..., None]:
    def run(module: Module, input: Any, weight: Any, out: Any, eps: float) -> None:
        function("rmsnorm")(input, weight, eps=eps, out=out, weight_order=order)

    return run


def _fused_add_rmsnorm(module: Module, input: Any, residual: Any, weight: Any, eps: float) -> None:
    rounded = len(module.args) > 2 and module.flag(0)  # cast_x_before_out_mul; older versions were made for the type alone
    function("fused_add_rmsnorm")(input, residual, weight, eps=eps, weight_order="rounded" if rounded else "fused")


def _rope(module: Module, q: Any, k: Any, cos_sin_cache: Any, positions: Any) -> None:
    width = shape_of("run_rope", "q", q, 3)[2]
    shape_of("run_rope", "k", k, 3)
    rotate = function("apply_rope_with_cos_sin_cache_inplace")
    if type_of(q) == type_of(k):
        rotate(positions, q, k, width, cos_sin_cache, module.flag(0))
        return
    for part in (q, k):  # newer kernels take queries of another type; what is rotated beside them is thrown away
        rotate(positions, part, like(part, dense_copy(bare(part)[:, :1])), width, cos_sin_cache, module.flag(0))


def _rope_store(module: Module, q: Any, k: Any, v: Any, k_cache: Any, v_cache: Any, cos_sin_cache: Any, positions: Any, out_loc: Any) -> None:
    _rope(module, q, k, cos_sin_cache, positions)
    rows = bare(k).shape[0]
    _store_rows("run_rope_store", bare(k).reshape(rows, -1), bare(v).reshape(rows, -1), k_cache, v_cache, out_loc)


def _store_rows(name: str, k: Any, v: Any, k_cache: Any, v_cache: Any, indices: Any, size_limit: Optional[int] = None, skipped: Optional[int] = None) -> None:
    """Rows at their places; what lies beyond the limit, or at the reserved place, is not stored."""
    of_type(name, "indices", indices, "i32", "i64")
    (count,) = shape_of(name, "indices", indices, 1)
    for argument, cache, rows in (("k_cache", k_cache, k), ("v_cache", v_cache, v)):
        of_shape(name, argument, cache, (bare(cache).shape[0], bare(rows).shape[1]))
        of_shape(name, argument[0], rows, (count, bare(rows).shape[1]))
        writable(name, argument, cache)
    limit = bare(k_cache).shape[0] if size_limit is None else size_limit
    for t, at in enumerate(bare(indices).tolist()):
        if size_limit is not None and (not 0 <= at < limit or at == skipped):
            continue
        if not 0 <= at < bare(k_cache).shape[0]:
            raise refuse(name, f"holds {at} at element {t}, expected 0 to {bare(k_cache).shape[0] - 1}", argument="indices")
        bare(k_cache)[at], bare(v_cache)[at] = bare(k)[t], bare(v)[t]


def _store_cache(module: Module, k: Any, v: Any, k_cache: Any, v_cache: Any, indices: Any, num_split: int, *limits: int) -> None:
    _store_rows("store_cache", k, v, k_cache, v_cache, indices, *limits)


def _set_mla_kv_buffer(module: Module, kv_buffer: Any, loc: Any, nope: Any, rope: Any, num_warps: int) -> None:
    for argument, value in (("kv_buffer", kv_buffer), ("nope", nope), ("rope", rope)):
        shape_of("set_mla_kv_buffer", argument, value, 2)
    function("set_mla_kv_buffer")(bare(kv_buffer)[:, None], loc, bare(nope)[:, None], bare(rope)[:, None])


def _group_quant(module: Module, input: Any, output_q: Any, output_s: Any, group_size: int, eps: float, low: float, high: float, scale_ue8m0: bool) -> None:
    sgl_kernel.sgl_per_token_group_quant_8bit(input, output_q, output_s, group_size, eps, low, high, scale_ue8m0)


def _group_quant_v2(
    module: Module, input: Any, output_q: Any, output_s: Any, masked_m: Any, group_size: int, scale_ue8m0: bool, fuse_silu_and_mul: bool, masked: bool, *sizes: Any
) -> None:
    low, high = (-128.0, 127.0) if "int8" in str(bare(output_q).dtype) else (-448.0, 448.0)
    given = {"fuse_silu_and_mul": fuse_silu_and_mul, "masked_m": masked_m if masked else None, "enable_v2": True}
    sgl_kernel.sgl_per_token_group_quant_8bit(input, output_q, output_s, group_size, 1e-10, low, high, scale_ue8m0, **given)


def _bytes(array: Any) -> Any:
    """The same memory as codes that can be stored one by one."""
    return bare(bytes_as(array, "u8"))


def _group_quant_by_traits(module: Module, input: Any, output_q: Any, output_s: Any, masked_m: Any = None, expected_m: Optional[int] = None) -> None:
    """Version 2's quantizer, whatever the layout of its scales; silu of the gate is rounded to the input's type, and so is its product with up. Groups of
    256 and f32 are version 1's, which divides where this kernel multiplies with an approximate quotient. No code is NaN: what is none becomes 448."""
    name, group, powers, fused = "per_token_group_quant", int(module.args[3]), module.flag(3), module.flag(6)
    shape = shape_of(name, "input", input, 2, 3)
    of_shape(name, "output_q", output_q, (*shape[:-1], shape[-1] // (2 if fused else 1)))
    shape_of(name, "output_s", output_s, len(shape))
    for argument, value in (("output_q", output_q), ("output_s", output_s)):
        writable(name, argument, value)
    at: Any = Ellipsis
    if masked_m is not None:
        of_shape(name, "masked_m", masked_m, shape[:1])
        of_type(name, "masked_m", masked_m, "i32", "i64")
        at = as_given(np.arange(shape[1]) < np.asarray(bare(masked_m))[:, None], bare(input))
    rows = dense(bare(input)[at].reshape(-1, shape[-1]))
    if fused:
        rows = bare(function("silu_and_mul")(like(input, rows), round_activation="yes"))
    whole = type_of(output_q) == "i8"
    limits = {"fp8_min": -128.0, "fp8_max": 127.0} if whole else {}
    second = group <= 128 and type_of(input) != "f32"
    made = function("sgl_per_token_group_quant_8bit")(like(input, rows), group_size=group, scale_ue8m0=powers, enable_v2=second, **limits)
    codes, scales = (bare(part) for part in made)
    of_shape(name, "output_s", output_s, (*shape[:-1], scales.shape[-1]))
    codes = _bytes(codes)
    if not whole:  # NaN, and infinity under a scale that is infinite
        codes[(rows != rows) | (not powers) * (abs(rows) == float("inf"))] = 0x7E
    for target, made in ((_bytes(bare(output_q)), codes), (bare(output_s), scales)):
        target[at] = made.reshape(target[at].shape)


def _tensor_quant(module: Module, input: Any, output_q: Any, output_s: Any) -> None:
    for argument, value in (("input", input), ("output_q", output_q)):
        shape_of("per_tensor_quant_fp8", argument, value, 1)
    row = (like(part, bare(part)[None]) for part in (input, output_q))
    sgl_kernel.sgl_per_tensor_quant_fp8(*row, output_s, module.flag(0))


def _hadamard(name: str) -> Callable[..., None]:
    return lambda module, x, out, scale: _put(name, "out", out, getattr(sgl_kernel, name)(x, scale))


def _topk_softmax(module: Module, weights: Any, ids: Any, gating: Any, workspace: Any, renormalize: bool, softcapping: float = 0.0, bias: Any = None) -> None:
    sgl_kernel.topk_softmax(weights, ids, gating, renormalize, softcapping, bias)


def _topk_sigmoid(
    module: Module, gating: Any, weights: Any, ids: Any, workspace: Any, renormalize: bool, bias: Any, factor: float = 1.0, shared: int = 0
) -> None:
    """A shared expert stands last, as the one behind all others: its weight is 1, or without renormalization the sum of the others over the factor.
    The factor multiplies weights that are renormalized."""
    name = "topk_sigmoid"
    if factor in (None, 1.0) and not shared:
        sgl_kernel.topk_sigmoid(weights, ids, gating, renormalize, bias)
        return
    if shared not in (0, 1):
        raise refuse(name, f"is {shared!r}, expected 0 or 1", argument="num_fused_shared_experts")
    (tokens, experts), (rows, wide) = shape_of(name, "gating_output", gating, 2), shape_of(name, "topk_weights", weights, 2)
    of_shape(name, "topk_ids", ids, (rows, wide))
    for argument, value, kind in (("topk_weights", weights, "f32"), ("topk_ids", ids, "i32")):
        of_type(name, argument, value, kind)
        writable(name, argument, value)
    if rows != tokens or wide <= shared:
        raise refuse(name, f"has shape {[rows, wide]}, expected {tokens} rows of more than {shared}", argument="topk_weights", code="bad_shape")
    own, chosen = dense(bare(weights)[:, : wide - shared]), dense(bare(ids)[:, : wide - shared])
    sgl_kernel.topk_sigmoid(own, chosen, gating, False, bias)
    values = np.asarray(own)
    sums = np.zeros(tokens, np.float32)
    for column in range(wide - shared):
        sums = sums + values[:, column]
    by = np.float64(1.0 if factor is None else factor)
    if renormalize:
        values = values * (by / (sums + np.float32(1e-20))).astype(np.float32)[:, None]
    last = np.ones(tokens, np.float32) if renormalize else (sums / by).astype(np.float32)
    bare(weights)[:, : wide - shared], bare(ids)[:, : wide - shared] = as_given(np.ascontiguousarray(values), bare(weights)), chosen
    if shared:
        bare(weights)[:, wide - 1], bare(ids)[:, wide - 1] = as_given(last, bare(weights)), experts


def _fused_gate(
    module: Module, input: Any, bias: Any, output: Any, indices: Any, topk: int, scoring: int, shared: int, renormalize: bool, factor: float, on_output: bool
) -> None:
    name = "moe_fused_gate"
    _none(name, scoring_func=scoring, num_fused_shared_experts=shared)
    weights, ids = function("biased_grouped_topk")(input, bias, topk, renormalize, 1, 1, routed_scaling_factor=factor, apply_routed_scaling_factor_on_output=on_output)
    _put(name, "output", output, weights)
    _put(name, "indices", indices, ids)


def _grouped_topk(
    module: Module, scores: Any, bias: Any, values: Any, indices: Any, groups: int, kept: int, topk: int, renormalize: bool, factor: float
) -> None:
    name = "grouped_topk"
    weights, ids = function("biased_grouped_topk")(scores, bias, topk, renormalize, groups, kept, routed_scaling_factor=factor, apply_routed_scaling_factor_on_output=renormalize)
    if not renormalize and factor != 1.0:
        weights = bare(weights) * (factor if is_torch(bare(weights)) else np.float32(factor))
    _put(name, "topk_values", values, weights)
    _put(name, "topk_indices", indices, ids)


# Columns of DeepSeek-V3's own products, for which there are ops that add as those kernels do.
DEEPSEEK_V3 = {"dsv3_fused_a_gemm": (2112,), "dsv3_router_gemm": (256, 384)}


def _few_rows(name: str, rows: Any, weights: Any, out: Any) -> None:
    """rows times the transposed weights [N, K], of any width."""
    (count, inner), (columns, _) = shape_of(name, "rows", rows, 2), shape_of(name, "weights", weights, 2)
    of_shape(name, "out", out, (count, columns))
    writable(name, "out", out)
    if inner == 7168 and columns in DEEPSEEK_V3[name] and 1 <= count <= 16:
        if name == "dsv3_router_gemm":
            sgl_kernel.dsv3_router_gemm(rows, weights, type_of(out), output=out)
        else:
            sgl_kernel.dsv3_fused_a_gemm(rows, like(weights, bare(weights).swapaxes(0, 1)), out)
        return
    made = bare(function("linear")(rows, weights, type_of(out)))
    bare(out)[...] = made if is_torch(made) else made.view(bare(out).dtype)


KERNELS: dict[str, Callable[..., None]] = {
    "awq_dequantize": lambda module, out, *given: _put("awq_dequantize", "out", out, sgl_kernel.awq_dequantize(*given)),
    "concat_mla_absorb_q": lambda module, a, b, out: _put("concat_mla_absorb_q", "out", out, sgl_kernel.concat_mla_absorb_q(a, b)),
    "concat_mla_k": lambda module, k, k_nope, k_rope: sgl_kernel.concat_mla_k(k, k_nope, k_rope),
    "dsv3_fused_a_gemm": lambda module, mat_a, mat_b, out: _few_rows("dsv3_fused_a_gemm", mat_a, like(mat_b, bare(mat_b).swapaxes(0, 1)), out),
    "dsv3_router_gemm": lambda module, states, weights, out: _few_rows("dsv3_router_gemm", states, weights, out),
    "fp8_blockwise_scaled_mm": lambda module, out, *given: sgl_kernel.fp8_blockwise_scaled_mm(*given, bare(out).dtype, out=out),
    "fused_add_rmsnorm": _fused_add_rmsnorm,
    "fused_store_index_k_cache": lambda module, key, cache, loc: function("fused_store_index_k_cache")(key, cache, loc, int(module.args[3])),
    "grouped_topk": _grouped_topk,
    "moe_align_block_size": lambda module, *given: sgl_kernel.moe_align_block_size(*given),
    "moe_fused_gate": _fused_gate,
    "per_tensor_quant_fp8": _tensor_quant,
    "per_token_group_quant_8bit": _group_quant,
    "per_token_group_quant_8bit_v2": _group_quant_v2,
    "per_token_group_quant": _group_quant_by_traits,
    "per_token_quant_fp8": lambda module, input, output_q, output_s: sgl_kernel.sgl_per_token_quant_fp8(input, output_q, output_s),
    "rmsnorm": _rmsnorm("fused"),
    "rmsnorm_hf": _rmsnorm("rounded"),
    "rotary_embedding": lambda module, *given: sgl_kernel.rotary_embedding(*given),
    "run_activation": _activation("no"),
    "run_activation_filtered": _filtered,
    "run_activation_with_rounding": _activation("yes"),
    "run_rope": _rope,
    "run_rope_store": _rope_store,
    "set_mla_kv_buffer": _set_mla_kv_buffer,
    "store_cache": _store_cache,
    "topk_sigmoid": _topk_sigmoid,
    "topk_softmax": _topk_softmax,
    **{name: _hadamard(name) for name in (f"hadamard_transform{end}" for end in ("", "_12n", "_20n", "_28n", "_40n"))},
}


# ---- in sglang's place ----


class _Loader(importlib.abc.Loader):
    """The module's own loader, and then our load_jit in it."""

    def __init__(self, own: Any) -> None:
        self._own = own

    def create_module(self, spec: ModuleSpec) -> Optional[ModuleType]:
        return self._own.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._own.exec_module(module)
        module.load_jit = load_jit  # type: ignore[attr-defined]


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name: str, path: Any, target: Any = None) -> Optional[ModuleSpec]:
        if name not in PLACES:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            found = None if finder is self or find is None else find(name, path, target)
            if found is not None and found.loader is not None:
                found.loader = _Loader(found.loader)
                return found
        return None


FINDER = _Finder()


def install() -> None:
    """From now on sglang's modules load our kernels; those that were imported before take them too."""
    if FINDER not in sys.meta_path:
        sys.meta_path.insert(0, FINDER)
    places = [sys.modules[name] for name in PLACES if name in sys.modules]
    theirs = [module.load_jit for module in places if module.load_jit is not load_jit]
    for name, module in list(sys.modules.items()):
        if name.startswith("sglang.") and getattr(module, "load_jit", None) in theirs:
            module.load_jit = load_jit  # type: ignore[attr-defined]
