"""TensorRT-LLM's products, torch.ops.trtllm: ops of ours, whose scales lie as its kernels read them. Tuners choose nothing here."""

from __future__ import annotations

from typing import Any, Optional

from .._ops import function
from ._adapt import NotOffered, refuse
from ._hooks.arrays import bare, type_of
from ._hooks.checks import of_shape, of_type, shape_of, writable
from ._layouts import codes_of, scales_of
from ._mx import as_bf16, halves, widened
from ._products import _dtype, _product
from ._trtllm_quantizers import BLOCK, contiguous, padded

# ---- e4m3 under scales of blocks ----


def _codes(name: str, argument: str, value: Any, rank: int) -> tuple[int, ...]:
    shape = shape_of(name, argument, value, rank)
    of_type(name, argument, value, "f8_e4m3")
    return shape


def _rows_of_scales(name: str, argument: str, scales: Any, rows: int, blocks: int) -> Any:
    """fp32 [rows, blocks] of [blocks, rows], or of what Hopper's quantizer gives: in one dimension, rows filled up to a multiple of 4, and room behind."""
    of_type(name, argument, scales, "f32")
    if scales.dim() == 2:
        of_shape(name, argument, scales, (blocks, rows))
        return scales.t().contiguous()
    (count,) = shape_of(name, argument, scales, 1)
    if count < blocks * padded(rows, 4):
        raise refuse(name, f"has {count} numbers, expected {blocks} blocks of {padded(rows, 4)} at least", argument=argument, code="bad_shape")
    return scales[: blocks * padded(rows, 4)].view(blocks, -1)[:, :rows].t().contiguous()


def _depths(name: str, inner: int, depth: int, columns: int) -> None:
    if inner != depth:
        raise refuse(name, f"has rows of {depth}, expected {inner} as mat1 has", argument="mat2", code="bad_shape")
    for what, size in (("K", inner), ("N", columns)):
        if size % 16:
            raise refuse(name, f"{what} must be a multiple of 16, ({what}={size})", argument="mat2", code="bad_shape")


def fp8_block_scaling_gemm_impl(mat1: Any, mat2: Any, mat1Scale: Any, mat2Scale: Any) -> Any:
    """bf16 [M, N] = sum over blocks of 128 of (mat1 [M, K] mat2 [N, K]^T) mat1Scale mat2Scale, as fp8_gemm_nt. mat1Scale is fp32 [ceil(K / 128), M] (fp8_quantize_1x128's),
    mat2Scale [ceil(N / 128), ceil(K / 128)]."""
    name = "fp8_block_scaling_gemm"
    (rows, inner), (columns, depth) = _codes(name, "mat1", mat1, 2), _codes(name, "mat2", mat2, 2)
    _depths(name, inner, depth, columns)
    blocks = -(-inner // BLOCK)
    sfa = _rows_of_scales(name, "mat1Scale", mat1Scale, rows, blocks)
    of_type(name, "mat2Scale", mat2Scale, "f32")
    of_shape(name, "mat2Scale", mat2Scale, (-(-columns // BLOCK), blocks))
    return function("fp8_gemm_nt")(mat1.contiguous(), sfa, mat2.contiguous(), mat2Scale.contiguous(), out_dtype="bf16")


def fp8_block_scaling_gemm(a: Any, b: Any, a_scale: Any, b_scale: Any, tune_max_num_tokens: int = 4096) -> Any:
    return fp8_block_scaling_gemm_impl(a, b, a_scale, b_scale)


def cute_dsl_fp8_gemm_blackwell(input: Any, weight: Any, input_scale: Any, weight_scale: Any, output_dtype: Any = None, use_tvm_ffi: bool = True) -> Any:
    _dtype("cute_dsl_fp8_gemm_blackwell", "output_dtype", output_dtype or "bf16", "bf16")
    return fp8_block_scaling_gemm_impl(input, weight, input_scale, weight_scale)


def fp8_block_scaling_bmm_out(mat1: Any, mat2: Any, mat1Scale: Any, mat2Scale: Any, out: Any) -> Any:
    """The same of each of a batch: mat1Scale is [B, ceil(K / 128), M to a multiple of 4] (fp8_batched_quantize_1x128_permute102's)."""
    name = "fp8_block_scaling_bmm"
    (batch, rows, inner), (count, columns, depth) = _codes(name, "mat1", mat1, 3), _codes(name, "mat2", mat2, 3)
    if count != batch:
        raise refuse(name, f"has {count} matrices, expected {batch} as mat1 has", argument="mat2", code="bad_shape")
    _depths(name, inner, depth, columns)
    blocks = -(-inner // BLOCK)
    for argument, value, shape in (
        ("mat1Scale", mat1Scale, (batch, blocks, padded(rows, 4))),
        ("mat2Scale", mat2Scale, (batch, -(-columns // BLOCK), blocks)),
    ):
        of_type(name, argument, value, "f32")
        of_shape(name, argument, value, shape)
    of_type(name, "out", out, "bf16")
    of_shape(name, "out", out, (batch, rows, columns))
    writable(name, "out", out)
    for at in range(batch):
        out[at] = fp8_block_scaling_gemm_impl(mat1[at], mat2[at], mat1Scale[at][:, :rows], mat2Scale[at])
    return out


def fp8_block_scaling_bmm(mat1: Any, mat2: Any, mat1Scale: Any, mat2Scale: Any, out_dtype: Any = None) -> Any:
    name = "fp8_block_scaling_bmm"
    _dtype(name, "out_dtype", "bf16" if out_dtype is None else out_dtype, "bf16")
    (batch, rows, _), (_, columns, _) = _codes(name, "mat1", mat1, 3), _codes(name, "mat2", mat2, 3)
    import torch

    return fp8_block_scaling_bmm_out(mat1, mat2, mat1Scale, mat2Scale, torch.empty(batch, rows, columns, dtype=torch.bfloat16))


def cute_dsl_fp8_bmm_blackwell(
    input: Any, weight: Any, input_scale: Any, weight_scale: Any, output: Any, output_dtype: Any = None, use_tvm_ffi: bool = True
) -> None:
    _dtype("cute_dsl_fp8_bmm_blackwell", "output_dtype", output_dtype or "bf16", "bf16")
    fp8_block_scaling_bmm_out(input, weight, input_scale, weight_scale, output)


def fp8_swap_ab_gemm(
    input: Any, weight: Any, weight_scale: Any, output_dtype: Any = None, disable_ue8m0_cast: bool = False, tune_max_num_tokens: int = 4096
) -> Any:
    """Rows in bf16 are quantized by blocks of 128 under powers of two, 2^ceil(log2(max(amax, 1e-10) / 448)), and multiplied as fp8_gemm_nt does."""
    import torch

    name = "fp8_swap_ab_gemm"
    (rows, inner), (columns, depth) = shape_of(name, "input", input, 2), _codes(name, "weight", weight, 2)
    of_type(name, "input", input, "bf16")
    kind = _dtype(name, "output_dtype", output_dtype or "bf16", "bf16")
    if depth != inner or inner % BLOCK:
        raise refuse(name, f"has rows of {depth}, expected {inner} as input has, a multiple of 128", argument="weight", code="bad_shape")
    of_type(name, "weight_scale", weight_scale, "f32")
    of_shape(name, "weight_scale", weight_scale, (-(-columns // BLOCK), inner // BLOCK))
    codes, words = function("sgl_per_token_group_quant_8bit")(input.contiguous(), group_size=BLOCK, scale_ue8m0=True)
    exponents = words.contiguous().view(torch.uint8).view(rows, -1)[:, : inner // BLOCK]
    scales = torch.ldexp(torch.ones(exponents.shape), exponents.int() - 127)
    return function("fp8_gemm_nt")(codes, scales, weight.contiguous(), weight_scale.contiguous(), out_dtype=kind)


# ---- four bits ----

NVFP4, MXFP4_MXFP8 = 0, 1  # FP4GemmType


def _tiles(name: str, argument: str, scales: Any, rows: int, blocks: int) -> Any:
    """Bytes of scales in tiles of 128 x 4, as [rows, blocks] filled up."""
    of_type(name, argument, scales, "u8", "f8_e4m3", "f8_e8m0")
    contiguous(name, argument, scales)
    high, wide = padded(rows, BLOCK), padded(blocks, 4)
    if scales.numel() != high * wide:
        raise refuse(name, f"has {scales.numel()} scales, expected {high} rows of {wide} in tiles of 128 x 4", argument=argument, code="bad_shape")
    return scales.view(high, wide)


def _one(name: str, value: Any) -> Any:
    of_type(name, "globalScale", value, "f32")
    if value.numel() != 1:
        raise refuse(name, f"has {value.numel()} numbers, expected one", argument="globalScale", code="bad_shape")
    return value.reshape(1)


def _wide_product(name: str, a: Any, b: Any, factor: Any, kind: str) -> Any:
    """Widened operands: fp32 sums of exact products, times the factor, rounded."""
    import torch

    sums = function("linear")(a, b, "f32") * factor
    return sums.to({"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}[kind])


def _exponents_applied(name: str, argument: str, value: Any, scales: Any, kind: str) -> Any:
    import torch

    raw = codes_of(value)
    codes = halves(raw) if kind == "e2m1" else raw
    rows, inner = codes.shape
    of_rows = scales_of(codes_of(_tiles(name, argument + "Scale", scales, rows, inner // 32)), rows, inner // 32, BLOCK)
    return as_bf16(widened(name, argument, codes, of_rows, kind), torch.empty(0))


def _four_bits(name: str, mat1: Any, mat2: Any, mat1Scale: Any, mat2Scale: Any, factor: Any, how: int, kind: str) -> Any:
    import torch

    of_type(name, "mat2", mat2, "u8")
    of_type(name, "mat1", mat1, "u8" if how == NVFP4 else "f8_e4m3")
    (rows, width), (columns, packed) = shape_of(name, "mat1", mat1, 2), shape_of(name, "mat2", mat2, 2)
    inner = packed * 2
    if width != (packed if how == NVFP4 else inner):
        text = f"mat1 and mat2 shapes cannot be multiplied ({rows}x{width} and {columns}x{packed})"
        raise refuse(name, text, argument="mat2", code="bad_shape")
    if inner % 32 or columns % 8:
        raise refuse(name, f"has shape {[columns, packed]}, expected k a multiple of 32 and n one of 8", argument="mat2", code="bad_shape")
    if how == MXFP4_MXFP8:
        a, b = _exponents_applied(name, "mat1", mat1, mat1Scale, "f8_e4m3"), _exponents_applied(name, "mat2", mat2, mat2Scale, "e2m1")
        return _wide_product(name, a, b, factor, kind)
    sfa, sfb = _tiles(name, "mat1Scale", mat1Scale, rows, inner // 16), _tiles(name, "mat2Scale", mat2Scale, columns, inner // 16)
    as_numbers = lambda scales: scales.view(torch.float8_e4m3fn)
    return function("cutlass_scaled_fp4_mm")(mat1.contiguous(), mat2.contiguous(), as_numbers(sfa), as_numbers(sfb), factor, kind)


def _kind(name: str, out_dtype: Any, default: str) -> str:
    return _dtype(name, "out_dtype", default if out_dtype is None else out_dtype, "f16", "bf16", "f32")


def fp4_gemm(mat1: Any, mat2: Any, mat1Scale: Any, mat2Scale: Any, globalScale: Any, fp4GemmType: int, out_dtype: Any = None) -> Any:
    """f16 (or out_dtype) [M, N] of packed e2m1 [M, K / 2] and [N, K / 2]: cutlass_scaled_fp4_mm (0, NVFP4), or of e4m3 [M, K] and e2m1 under exponents (1, MXFP8 and MXFP4), widened
    to bf16. Scales are bytes in tiles of 128 x 4. Of a batch, [B, ...], each product has scales of its own."""
    import torch

    name = "fp4_gemm"
    if fp4GemmType not in (NVFP4, MXFP4_MXFP8):
        raise refuse(name, f"is {fp4GemmType}, expected 0 (NVFP4) or 1 (MXFP4 and MXFP8)", argument="fp4GemmType")
    kind, factor = _kind(name, out_dtype, "f16"), _one(name, globalScale)
    if mat1.dim() == 2:
        return _four_bits(name, mat1, mat2, mat1Scale, mat2Scale, factor, fp4GemmType, kind)
    batch, *_ = shape_of(name, "mat1", mat1, 2, 3)
    if shape_of(name, "mat2", mat2, 3)[0] != batch or not batch:
        raise refuse(name, f"has shape {list(mat2.shape)}, expected {batch} matrices as mat1 has, 1 at least", argument="mat2", code="bad_shape")
    for argument, scales in (("mat1Scale", mat1Scale), ("mat2Scale", mat2Scale)):
        if scales.numel() % batch:
            raise refuse(name, f"has {scales.numel()} scales for {batch} matrices", argument=argument, code="bad_shape")
    of_each = lambda scales: scales.reshape(batch, -1)
    parts = zip(mat1, mat2, of_each(mat1Scale), of_each(mat2Scale))
    return torch.stack([_four_bits(name, a, b, sfa, sfb, factor, fp4GemmType, kind) for a, b, sfa, sfb in parts])


def fp4_gemm_trtllmgen(mat1: Any, mat2: Any, mat1Scale: Any, mat2Scale: Any, globalScale: Any, sfUseUE8M0: bool = False, out_dtype: Any = None) -> Any:
    name = "fp4_gemm_trtllmgen"
    if sfUseUE8M0:
        raise refuse(name, "is True, offered is False", kind=NotOffered, code="unsupported", argument="sfUseUE8M0")
    return fp4_gemm(mat1, mat2, mat1Scale, mat2Scale, globalScale, NVFP4, out_dtype)


def nvfp4_gemm(act_fp4: Any, weight: Any, act_sf: Any, weight_scale: Any, alpha: Any, output_dtype: Any, *how: Any, **others: Any) -> Any:
    """fp4_gemm of NVFP4; where the output lies and which backends may run mean nothing here."""
    return fp4_gemm(act_fp4, weight, act_sf, weight_scale, alpha, NVFP4, output_dtype)


def mxfp8_mxfp8_gemm(act: Any, actScale: Any, weight: Any, weightScale: Any, globalScale: Any, out_dtype: Any = None) -> Any:
    """bf16 (or out_dtype) [M, N] of e4m3 [M, K] and [N, K] under exponents in tiles of 128 x 4, widened to bf16."""
    name = "mxfp8_mxfp8_gemm"
    (_, inner), (_, depth) = _codes(name, "act", act, 2), _codes(name, "weight", weight, 2)
    if depth != inner or inner % 32:
        raise refuse(name, f"has rows of {depth}, expected {inner} as act has, a multiple of 32", argument="weight", code="bad_shape")
    a, b = _exponents_applied(name, "act", act, actScale, "f8_e4m3"), _exponents_applied(name, "weight", weight, weightScale, "f8_e4m3")
    return _wide_product(name, a, b, _one(name, globalScale), _kind(name, out_dtype, "bf16"))


# ---- sixteen bits, and e4m3 of whole tensors ----


def _both_orders(name: str, mat_a: Any, mat_b: Any, bias: Any) -> None:
    (_, inner), (depth, _) = shape_of(name, "mat_a", mat_a, 2), shape_of(name, "mat_b", mat_b, 2)
    if depth != inner:
        raise refuse(name, f"has {depth} rows, expected {inner} as mat_a has columns", argument="mat_b", code="bad_shape")
    if bias is not None:
        raise refuse(name, "is given: bias is not supported yet", argument="bias")
    if mat_a.stride(1) != 1 or mat_b.stride(0) != 1:
        argument = "mat_a" if mat_a.stride(1) != 1 else "mat_b"
        raise refuse(name, f"has strides {list(bare({'mat_a': mat_a, 'mat_b': mat_b}[argument]).stride())}, expected rows of a and columns of b", argument=argument, code="bad_layout")


def _sixteen(name: str, mat_a: Any, mat_b: Any, bias: Any, out_dtype: Any) -> Any:
    of_type(name, "mat_a", mat_a, "bf16", "f16")
    of_type(name, "mat_b", mat_b, type_of(mat_a))
    _both_orders(name, mat_a, mat_b, bias)
    kind = _dtype(name, "out_dtype", type_of(mat_a) if out_dtype is None else out_dtype, "bf16", "f16", "f32")
    experts = mat_b.shape[1]
    few = 1 <= mat_a.shape[0] <= 16 and type_of(mat_a) == "bf16"
    if name == "dsv3_router_gemm_op" and few and (mat_a.shape[1], experts, kind) == (7168, 256, "f32"):
        return function("dsv3_router_gemm")(mat_a.contiguous(), mat_b.t(), "f32")
    if name == "dsv3_fused_a_gemm_op" and few and (mat_a.shape[1], experts, kind) == (7168, 2112, "bf16"):
        return function("dsv3_fused_a_gemm")(mat_a.contiguous(), mat_b)
    return _product(name, mat_a, mat_b, None, None, kind, {})


def cublas_mm(mat_a: Any, mat_b: Any, bias: Any = None, out_dtype: Any = None, *where: Any, **others: Any) -> Any:
    """mat_a [M, K] times mat_b [K, N], whose columns are neighbours in memory."""
    return _sixteen("cublas_mm", mat_a, mat_b, bias, out_dtype)


def dsv3_router_gemm_op(mat_a: Any, mat_b: Any, bias: Any, out_dtype: Any) -> Any:
    """The router's kernel of 7168 x 256 in fp32 for 1 to 16 tokens, and cublas_mm of others."""
    return _sixteen("dsv3_router_gemm_op", mat_a, mat_b, bias, out_dtype)


def dsv3_fused_a_gemm_op(mat_a: Any, mat_b: Any, bias: Any, out_dtype: Any) -> Any:
    """The kernel of 7168 x 2112 in bf16 for 1 to 16 tokens, and cublas_mm of others."""
    return _sixteen("dsv3_fused_a_gemm_op", mat_a, mat_b, bias, out_dtype)


def cublas_scaled_mm(
    mat_a: Any, mat_b: Any, scale_a: Any, scale_b: Any, bias: Any = None, out_dtype: Optional[Any] = None, *where: Any, **others: Any
) -> Any:
    """e4m3 [M, K] times [K, N] in the order of columns, times both scales: bmm_fp8, in fp32 of numbers widened to bf16."""
    name = "cublas_scaled_mm"
    for argument, value in (("mat_a", mat_a), ("mat_b", mat_b)):
        of_type(name, argument, value, "f8_e4m3")
    _both_orders(name, mat_a, mat_b, bias)
    kind = _dtype(name, "out_dtype", out_dtype, "bf16", "f16", "f32")
    for argument, value in (("scale_a", scale_a), ("scale_b", scale_b)):
        of_type(name, argument, value, "f32")
        if value.numel() != 1:
            raise refuse(name, f"has {value.numel()} numbers, offered is one", kind=NotOffered, code="unsupported", argument=argument)
    scales = scale_a.reshape(1), scale_b.reshape(1)
    if kind == "f32":
        import torch

        return _wide_product(name, mat_a.to(torch.bfloat16), mat_b.t().to(torch.bfloat16), scales[0] * scales[1], kind)
    return function("bmm_fp8")(mat_a.contiguous()[None], mat_b[None], *scales, kind)[0]
