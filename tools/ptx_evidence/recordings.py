"""Recorded calls of upstream's Triton kernels (tests/golden), made again by upstream's own code: one function an op, from a case to its outputs."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
import torch
import triton

from .launches import BF16, F16, F32, FP8

_RAW = {"bfloat16": (np.int16, BF16), "float8_e4m3fn": (np.uint8, FP8)}  # ml_dtypes' names


def tensor(array: Any, dtype: str) -> torch.Tensor:
    """The same bytes as a torch tensor."""
    if dtype in _RAW:
        raw, kind = _RAW[dtype]
        return torch.from_numpy(np.ascontiguousarray(array).view(raw).copy()).view(kind)
    return torch.from_numpy(np.array(array))


def _strided(value: torch.Tensor, strides: list[int] | None) -> torch.Tensor:
    if not strides:
        return value
    made = torch.empty_strided(value.shape, strides, dtype=value.dtype)
    return made.copy_(value)


def decode_attention_fwd(m: Any, x: dict, a: dict) -> dict:
    q, k = x["q"], x["k_buffer"]
    width = a.get("v_head_dim", 512)
    v = k[..., :width] if a.get("v_is_slice_of_k") else x["v_buffer"]
    splits = a.get("max_kv_splits", 8)
    o = torch.zeros(*q.shape[:2], width, dtype=q.dtype)
    m.decode.decode_attention_fwd(q, k, v, o, x["kv_indptr"], x["kv_indices"], torch.zeros(*q.shape[:2], splits, width), torch.zeros(*q.shape[:2], splits), x["num_kv_splits"], splits,
                                  a["sm_scale"], logit_cap=a.get("logit_cap", 0.0), sinks=x.get("sinks"))  # fmt: skip
    return {"o": o}


def extend_attention_fwd(m: Any, x: dict, a: dict) -> dict:
    q, v = x["q_extend"], x["v_extend"]
    kb = x["k_buffer"]
    vb = kb[..., : v.shape[-1]] if a.get("v_is_slice_of_k") else x["v_buffer"]
    o = torch.zeros(*q.shape[:2], v.shape[-1], dtype=q.dtype)
    longest = int((x["qo_indptr"][1:] - x["qo_indptr"][:-1]).max())
    m.extend.extend_attention_fwd(q, x["k_extend"], v, o, kb, vb, x["qo_indptr"], x["kv_indptr"], x["kv_indices"], x.get("custom_mask"), a.get("is_causal", True), x.get("mask_indptr"), longest,
                                  sm_scale=a.get("sm_scale"), logit_cap=a.get("logit_cap", 0.0), sinks=x.get("sinks"))  # fmt: skip
    return {"o_extend": o}


def context_attention_fwd(m: Any, x: dict, a: dict) -> dict:
    o = torch.zeros_like(x["q"])
    m.prefill.context_attention_fwd(x["q"], x["k"], x["v"], o, x["b_start_loc"], x["b_seq_len"], a["max_input_len"], is_causal=a.get("is_causal", True))
    return {"o": o}


def per_token_quant_int8(m: Any, x: dict, a: dict) -> dict:
    scale = {"f16": F16, "bf16": BF16}.get(a.get("scale_dtype"), F32)
    return dict(zip(("x_q", "scales", "x_sum"), m.int8.per_token_quant_int8(x["x"], scale_dtype=scale, cal_sum=a.get("cal_sum", False))))


def matmul_persistent(m: Any, x: dict, a: dict) -> dict:
    strides = a.get("strides", {})
    left, right = _strided(x["a"], strides.get("in.a")), _strided(x["b"], strides.get("in.b"))
    return {"c": m.batch._matmul_persistent_triton(left, right, x.get("bias"))}


def log_softmax(m: Any, x: dict, a: dict) -> dict:
    return {"output": m.batch.log_softmax(x["input"])}


def mean_dim(m: Any, x: dict, a: dict) -> dict:
    return {"output": m.batch.mean_dim(x["input"], 1)}


def ep_gather(m: Any, x: dict, a: dict) -> dict:
    out = torch.zeros(x["recv_topk_ids"].shape[0], x["input_tensor"].shape[1], dtype=x["input_tensor"].dtype)
    m.ep.ep_gather(x["input_tensor"], x["recv_topk_ids"], x["recv_topk_weight"], x["input_index"], out)
    return {"output_tensor": out}


def post_reorder_triton_kernel(m: Any, x: dict, a: dict) -> dict:
    tokens, topk = x["topk_ids"].shape
    hidden = x["down_output"].shape[1]
    out = torch.zeros(tokens, hidden, dtype=x["down_output"].dtype)
    m.ep.post_reorder_triton_kernel[(tokens,)](x["down_output"], out, x["src2dst"], x["topk_ids"], x["topk_weights"], topk, hidden, BLOCK_SIZE=512)
    return {"output": out}


def silu_and_mul_masked_post_quant_fwd(m: Any, x: dict, a: dict) -> dict:
    experts, tokens, width = x["input"].shape
    out, scale = torch.zeros(experts, tokens, width // 2, dtype=FP8), torch.zeros(experts, tokens, width // 256)
    m.ep.silu_and_mul_masked_post_quant_fwd(x["input"], out, scale, 128, x["masked_m"], a.get("scale_ue8m0", False))
    return {"output": out, "output_scale": scale}


def fused_moe_kernel(m: Any, x: dict, a: dict) -> dict:
    left, right = x["A"], x["B"]
    out = {"f16": F16, "f32": F32}.get(a.get("compute_type"), BF16)
    compute = {F16: triton.language.float16, F32: triton.language.float32, BF16: triton.language.bfloat16}[out]
    topk, ids = a.get("top_k", 1), x["topk_ids"]
    c = torch.zeros(*ids.shape, right.shape[1], dtype=out)
    blocks = {f"BLOCK_SIZE_{k}": a[f"BLOCK_SIZE_{k}"] for k in "MNK"}
    config = blocks | {"GROUP_SIZE_M": a.get("GROUP_SIZE_M", 8), "num_warps": a.get("num_warps", 4), "num_stages": a.get("num_stages", 3)}
    block_shape = [a.get("block_shape_0", 0), a.get("block_shape_1", 0)] if a.get("block_shape_1") else None
    flags = {name: bool(a.get(name)) for name in ("use_fp8_w8a8", "use_int8_w8a8", "use_int8_w8a16", "use_int4_w4a16", "per_channel_quant")}
    sorted_ids, experts, padded = x["sorted_token_ids"], x["expert_ids"], x["num_tokens_post_padded"]
    # The wrapper would quantize again: what it hands the kernel is the case's inputs.
    given = lambda value, *_, **__: (value, x["A_scale"])  # noqa: E731
    names = ("scaled_fp8_quant", "sglang_per_token_group_quant_fp8", "per_token_quant_int8", "sglang_per_token_group_quant_int8")
    before = {name: getattr(m.moe, name) for name in names}
    for name in names:
        setattr(m.moe, name, given)
    try:
        m.moe.invoke_fused_moe_kernel(left, right, x.get("bias"), c, x.get("A_scale"), x.get("B_scale"), x.get("B_zp"), x["topk_weights"], ids, sorted_ids, experts, padded, bool(a.get("mul_routed_weight")), topk,
                                      config, compute, block_shape=block_shape, **flags)  # fmt: skip
    finally:
        for name, value in before.items():
            setattr(m.moe, name, value)
    return {"C": c}


OPS: dict[str, Callable] = {
    function.__name__: function
    for function in (decode_attention_fwd, extend_attention_fwd, context_attention_fwd, fused_moe_kernel, per_token_quant_int8, matmul_persistent, log_softmax, mean_dim, ep_gather,
                     post_reorder_triton_kernel, silu_and_mul_masked_post_quant_fwd)
}  # fmt: skip
