"""FlashInfer's product of e4m3 under scales of blocks that quantizes on the way what comes in bf16: rows by 128 numbers, weights by 128 x 128."""

from __future__ import annotations

from typing import Any, Optional

import numpy as np

from .._arrays import as_dtype, is_torch
from .._ops import function
from ._adapt import named, refuse
from ._hooks.arrays import as_f32, bare, bytes_as, like, type_of
from ._hooks.checks import of_shape, of_type, shape_of
from ._layouts import as_given
from ._products import BLOCK, _dtype, _into, _room


def _blocks_of(name: str, argument: str, value: Any, scales: Any, rows_of_a_scale: int) -> tuple[Any, Any]:
    """e4m3 codes and scales: those that are given, or of bf16 the largest of a block over 448."""
    kind = type_of(value)
    if kind == "bf16":
        if scales is not None:
            raise refuse(name, f"{argument}_scale should not be provided for BF16 inputs", argument=f"{argument}_scale")
        if rows_of_a_scale == 1:
            return function("sgl_per_token_group_quant_8bit")(value, group_size=BLOCK)
        return _squares(value)
    if kind not in ("f8_e4m3", "u8"):
        raise refuse(name, f"{argument} must be either FP8 (float8_e4m3fn) or BF16 (bfloat16), got {bare(value).dtype}", argument=argument, code="bad_dtype")
    if scales is None:
        raise refuse(name, f"{argument}_scale is required when {argument} is FP8", argument=f"{argument}_scale", code="missing_argument")
    of_type(name, f"{argument}_scale", scales, "f32")
    return value, scales


def _squares(value: Any) -> tuple[Any, Any]:
    """Codes under a scale for 128 x 128 numbers: the largest magnitude becomes 448."""
    wide = np.asarray(as_f32(bare(value)))
    rows, inner = wide.shape
    padded = np.zeros((-(-rows // BLOCK) * BLOCK, inner), np.float32)
    padded[:rows] = wide
    squares = padded.reshape(-1, BLOCK, inner // BLOCK, BLOCK)
    scales = np.maximum(np.abs(squares).max((1, 3)), np.float32(1e-10)) / np.float32(448)
    by = np.repeat(np.repeat(scales, BLOCK, axis=0)[:rows], BLOCK, axis=1)
    codes = np.empty((rows, inner), np.uint8)
    function("sgl_per_tensor_quant_fp8")(wide / by, output_q=as_dtype(codes, "f8_e4m3"), output_s=np.ones(1, np.float32), is_static=True)
    return codes, scales


@named("fp8_blockscale_gemm_sm90")
def fp8_blockscale_gemm_sm90(
    input: Any, weight: Any, input_scale: Optional[Any] = None, weight_scale: Optional[Any] = None, out: Optional[Any] = None, out_dtype: Optional[Any] = None,
    **how: Any,
) -> Any:  # fmt: skip
    """fp8_gemm_nt; rows in bf16 are quantized by 128 of a row, and weights in bf16 by 128 x 128."""
    name = "fp8_blockscale_gemm_sm90"
    (rows, inner), (columns, depth) = shape_of(name, "input", input, 2), shape_of(name, "weight", weight, 2)
    if depth != inner:
        raise refuse(name, f"K dimension mismatch: input has K={inner}, weight has K={depth}", argument="weight", code="bad_shape")
    if inner % BLOCK:
        raise refuse(name, f"K dimension must be divisible by block size ({BLOCK}), got K={inner}", argument="input", code="bad_shape")
    if columns % 64:
        raise refuse(name, f"N dimension must be divisible by 64, got N={columns}", argument="weight", code="bad_shape")
    if type_of(input) == "f8_e4m3" and type_of(weight) == "bf16":
        raise refuse(name, "FP8 input + BF16 weight is not supported", argument="weight", code="bad_dtype")
    kind = _dtype(name, "out_dtype", "bf16" if out_dtype is None else out_dtype, "bf16")
    _room(name, out, (rows, columns), kind)
    a, sfa = _blocks_of(name, "input", input, input_scale, 1)
    b, sfb = _blocks_of(name, "weight", weight, weight_scale, BLOCK)
    if tuple(bare(sfa).shape) == (inner // BLOCK, rows) and input_scale is not None:  # blocks first, as the kernel reads them
        sfa = like(sfa, bare(sfa).swapaxes(0, 1))
    of_shape(name, "input_scale", sfa, (rows, inner // BLOCK))
    if tuple(bare(sfb).shape) not in ((columns, inner // BLOCK), (-(-columns // BLOCK), inner // BLOCK)):
        text = f"weight_scale shape mismatch. Expected {[columns, inner // BLOCK]} or {[-(-columns // BLOCK), inner // BLOCK]}, got {list(bare(sfb).shape)}"
        raise refuse(name, text, argument="weight_scale", code="bad_shape")
    as_codes = lambda codes: bytes_as(as_given(codes, bare(sfa)) if isinstance(codes, np.ndarray) else bare(codes), "f8_e4m3")
    given = lambda scales: as_given(scales, bare(sfa)) if isinstance(scales, np.ndarray) and is_torch(bare(sfa)) else scales
    each = 1 if tuple(bare(sfb).shape)[0] == columns and columns > 1 else BLOCK
    return _into(out, function("fp8_gemm_nt")(as_codes(a), given(sfa), as_codes(b), given(sfb), gran_n=each, out_dtype=kind, **how))


# What is here, by the module in which upstream has it.
PLACES = {"flashinfer.gemm.gemm_base": (fp8_blockscale_gemm_sm90,)}
