"""cutlass_fused_moe of rows in MXFP8 and weights in MXFP4 or MXFP8, whose 32 neighbours along K share an exponent. Operands are widened to bf16, which holds their numbers;
between the products stand SwiGLU, rounded to the output's type, and mxfp8_quantize."""

from __future__ import annotations

from typing import Any, Optional

import numpy as np

from .._arrays import is_torch
from .._ops import function
from ._adapt import NotOffered, refuse
from ._hooks.arrays import as_f32, bare, dense, rounded, type_of
from ._hooks.checks import of_shape, of_type, shape_of, writable
from ._layouts import as_given, codes_of, scales_of
from ._mx import GROUP, as_bf16, halves, widened
from ._products import _dtype, _put

NAME = "cutlass_fused_moe"
SWIGLU = ("Swiglu", "SwigluBias")


def _numbers(argument: str, value: Any, *kinds: str) -> np.ndarray:
    of_type(NAME, argument, value, *kinds)
    wide = as_f32(bare(value)) if kinds[0] not in ("i32", "i64") else bare(value)
    return wide.detach().numpy() if is_torch(wide) else np.asarray(wide)


def _exponents(argument: str, value: Any, rows: int, blocks: int, tile: int) -> np.ndarray:
    """[rows, blocks] of bytes, or words of four, in tiles of 128 x 4 or row by row."""
    of_type(NAME, argument, value, "u8", "i32", "f8_e8m0", "f8_e4m3")
    raw = codes_of(dense(bare(value)))
    wanted = rows * blocks if tile == 1 else -(-rows // tile) * tile * -(-blocks // 4) * 4
    if raw.size != wanted:
        raise refuse(NAME, f"has {raw.size} exponents, expected {wanted} of {rows} rows of {blocks}", argument=argument, code="bad_shape")
    return scales_of(raw.reshape(-1), rows, blocks, tile)


def _weights(argument: str, value: Any, rows: Optional[int]) -> tuple[str, np.ndarray]:
    """Codes [E, N, K]: e4m3, or e2m1 packed in bytes or words of sixteen."""
    shape_of(NAME, argument, value, 3)
    kind = type_of(value)
    if kind == "f8_e4m3":
        return kind, codes_of(dense(bare(value)))
    of_type(NAME, argument, value, "u8", "i64")
    return "e2m1", halves(codes_of(dense(bare(value))))


def swiglu(gate: np.ndarray, up: np.ndarray, alpha: float, beta: float, limit: float) -> np.ndarray:
    """g / (1 + e^(-alpha g)) (u + beta) in fp32, of g = min(gate, limit) and u = clamp(up, -limit, limit)."""
    gate, up = np.minimum(gate, np.float32(limit)), np.clip(up, np.float32(-limit), np.float32(limit))
    with np.errstate(over="ignore"):
        return (gate / (1 + np.exp(-(np.float32(alpha) * gate).astype(np.float64))) * (up + np.float32(beta))).astype(np.float32)


def _of_each(argument: str, value: Any, experts: int, default: float) -> np.ndarray:
    if value is None:
        return np.full(experts, default, np.float32)
    of_shape(NAME, argument, value, (experts,))
    return _numbers(argument, value, "f32")


def mixture(call: dict, scales: list, kind: str, in_tiles: bool) -> list:
    """input e4m3 [T, H], fc1 [E, 2 I, H] (up, then gate), fc2 [E, H, I]; quant_scales are exponents of fc1, a factor [E] of its product, and fc2's two. The output, [T, H] in
    output_dtype, is the fp32 sum over a token's experts of weight times row, which are rounded to output_dtype before."""
    if kind not in SWIGLU:
        raise refuse(NAME, f"is {kind}, offered with use_mxfp8_act_scaling is Swiglu", kind=NotOffered, code="unsupported", argument="activation_type")
    for argument in ("fc1_expert_biases", "fc2_expert_biases"):
        if call.get(argument) is not None:
            raise refuse(NAME, "is given, offered with use_mxfp8_act_scaling is None", kind=NotOffered, code="unsupported", argument=argument)
    if len(scales) != 4:
        raise refuse(NAME, f"has {len(scales)} tensors, expected 4 with use_mxfp8_act_scaling", argument="quant_scales")
    if call.get("input_sf") is None:
        raise refuse(NAME, "is required with use_mxfp8_act_scaling", argument="input_sf", code="missing_argument")
    out_kind = _dtype(NAME, "output_dtype", call["output_dtype"], "bf16", "f16")
    tokens, hidden = shape_of(NAME, "input", call["input"], 2)
    of_type(NAME, "input", call["input"], "f8_e4m3")
    (kind1, w1), (kind2, w2) = _weights("fc1_expert_weights", call["fc1_expert_weights"], None), _weights("fc2_expert_weights", call["fc2_expert_weights"], hidden)
    experts, inner = w2.shape[0], w2.shape[2]
    if w1.shape != (experts, 2 * inner, hidden) or w2.shape[1] != hidden or hidden % GROUP or inner % GROUP or kind1 != kind2:
        raise refuse(NAME, f"are of {list(w1.shape)} and {list(w2.shape)}, expected [E, 2 I, {hidden}] and [E, {hidden}, I] of whole groups of 32", argument="fc1_expert_weights", code="bad_shape")
    ids = _numbers("token_selected_experts", call["token_selected_experts"], "i32", "i64")
    if ids.ndim != 2 or len(ids) != tokens:
        raise refuse(NAME, f"has shape {list(ids.shape)}, expected {tokens} rows", argument="token_selected_experts", code="bad_shape")
    weights = np.ones(ids.shape, np.float32)
    if call["token_final_scales"] is not None:
        of_shape(NAME, "token_final_scales", call["token_final_scales"], ids.shape)
        weights = _numbers("token_final_scales", call["token_final_scales"], "f32", "bf16", "f16")
    model, output = bare(call["input"]), call.get("output")
    if output is not None:
        of_type(NAME, "output", output, out_kind)
        of_shape(NAME, "output", output, (tokens, hidden))
        writable(NAME, "output", output)
    factors = [_of_each("quant_scales", scales[at], experts, 1.0) for at in (1, 3)]
    alpha, beta, limit = (_of_each(f"swiglu_{part}", call.get(f"swiglu_{part}"), experts, default) for part, default in (("alpha", 1.0), ("beta", 0.0), ("limit", np.inf)))
    of_w1, of_w2 = (
        _exponents("quant_scales", scales[at], experts * high, wide // GROUP, 128) if high % 128 == 0 else _batches("quant_scales", scales[at], experts, high, wide // GROUP)
        for at, high, wide in ((0, 2 * inner, hidden), (2, hidden, inner))
    )
    x = widened(NAME, "input", codes_of(dense(model)), _exponents("input_sf", call["input_sf"], tokens, hidden // GROUP, 128 if in_tiles else 1), "f8_e4m3")
    own, sums = ids - int(call.get("ep_rank", 0)) * experts, np.zeros((tokens, hidden), np.float32)
    rows = np.zeros((*ids.shape, hidden), np.float32)
    for expert in range(experts):
        of_token, choice = np.nonzero(own == expert)
        if not len(of_token):
            continue
        high = slice(expert * 2 * inner, (expert + 1) * 2 * inner), slice(expert * hidden, (expert + 1) * hidden)
        product = _rounded_product(x[of_token], widened(NAME, "fc1_expert_weights", w1[expert], of_w1[high[0]], kind1), factors[0][expert], out_kind, model)
        gated = swiglu(product[:, inner:], product[:, :inner], alpha[expert], beta[expert], limit[expert])
        codes, exponents = function("mxfp8_quantize")(rounded(as_given(gated, model), out_kind), False)
        again = widened(NAME, "input", codes_of(codes), codes_of(exponents).reshape(len(of_token), -1), "f8_e4m3")
        rows[of_token, choice] = _rounded_product(again, widened(NAME, "fc2_expert_weights", w2[expert], of_w2[high[1]], kind2), factors[1][expert], out_kind, model)
    for choice in range(ids.shape[1]):
        sums += weights[:, choice, None] * rows[:, choice]
    made = rounded(as_given(sums, model), out_kind)
    if output is None:
        return [made]
    _put(bare(output), made)
    return [output]


def _batches(argument: str, value: Any, experts: int, rows: int, blocks: int) -> np.ndarray:
    """Of experts whose tiles are not whole: each expert's rows are filled up by themselves."""
    of_type(NAME, argument, value, "u8", "i32", "f8_e8m0", "f8_e4m3")
    raw = codes_of(dense(bare(value))).reshape(-1)
    each = -(-rows // 128) * 128 * -(-blocks // 4) * 4
    if raw.size != experts * each:
        raise refuse(NAME, f"has {raw.size} exponents, expected {experts} times {each}", argument=argument, code="bad_shape")
    return np.concatenate([scales_of(part, rows, blocks, 128) for part in raw.reshape(experts, each)])


def _rounded_product(a: np.ndarray, b: np.ndarray, factor: np.float32, kind: str, model: Any) -> np.ndarray:
    """fp32 sums times the factor, rounded to 16 bits, as fp32 again."""
    sums = function("linear")(as_bf16(a, model), as_bf16(b, model), "f32")
    wide = as_f32(rounded(bare(sums) * factor if not is_torch(bare(sums)) else bare(sums) * float(factor), kind))
    return wide.numpy() if is_torch(wide) else np.asarray(wide, np.float32)
