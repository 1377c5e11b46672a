"""Launches of upstream's Triton kernels (sglang's and FlashInfer's), through its wrappers where it has them, with inputs from seeds: the same bytes on
any machine. Each function takes what draws inputs, upstream's modules by the names below, and sizes; it gives the outputs by name."""

from __future__ import annotations

import math
from typing import Any, Callable

import numpy as np
import torch
import triton

MODULES = {
    "fp8": "sglang.srt.layers.quantization.fp8_kernel",
    "int8": "sglang.srt.layers.quantization.int8_kernel",
    "moe": "sglang.srt.layers.moe.fused_moe_triton.fused_moe_triton_kernels",
    "ep": "sglang.srt.layers.moe.ep_moe.kernels",
    "router": "sglang.srt.layers.moe.router",
    "elementwise": "sglang.srt.layers.elementwise",
    "batch": "sglang.srt.batch_invariant_ops.batch_invariant_ops",
    "attn_utils": "sglang.srt.layers.attention.utils",
    "prefill": "sglang.srt.layers.attention.triton_ops.prefill_attention",
    "decode": "sglang.srt.layers.attention.triton_ops.decode_attention",
    "extend": "sglang.srt.layers.attention.triton_ops.extend_attention",
    "merge": "sglang.srt.layers.attention.triton_ops.merge_state",
    "fp8kv": "sglang.srt.layers.attention.triton_ops.trtllm_fp8_kv_kernel",
    "sparsity": "sglang.srt.layers.attention.triton_ops.double_sparsity_attention",
    "mem": "sglang.srt.mem_cache.utils",
    "memcommon": "sglang.srt.mem_cache.common",
    "allocator": "sglang.srt.mem_cache.allocator",
    "dequant_k": "sglang.srt.layers.attention.nsa.dequant_k_cache",
    "quant_k": "sglang.srt.layers.attention.nsa.quant_k_cache",
    "index_buf": "sglang.srt.layers.attention.nsa.index_buf_accessor",
    "transform": "sglang.srt.layers.attention.nsa.transform_index",
    "nsa": "sglang.srt.layers.attention.nsa.triton_kernel",
    "awq": "sglang.srt.layers.quantization.awq_triton",
    "bitmask": "sglang.srt.constrained.triton_ops.bitmask_ops",
    "spec": "sglang.srt.speculative.spec_utils",
    "eagle2": "sglang.srt.speculative.eagle_info_v2",
    "eagle_multi": "sglang.srt.speculative.multi_layer_eagle_utils",
    "batch_info": "sglang.srt.model_executor.forward_batch_info",
    "tb": "sglang.srt.layers.attention.triton_backend",
    "trtllm": "sglang.srt.layers.attention.trtllm_mla_backend",
    "fa": "sglang.srt.layers.attention.flashattention_backend",
    "dp": "sglang.srt.layers.dp_attention",
    "hash": "sglang.srt.layers.multimodal",
    "l2": "sglang.srt.layers.attention.fla.l2norm",
    "gate": "sglang.srt.layers.attention.fla.fused_gdn_gating",
    "diffusion": "sglang.multimodal_gen.runtime.layers.triton_ops",
    "mamba": "sglang.srt.layers.attention.mamba.ops.mamba_ssm",
    "ssd_bmm": "sglang.srt.layers.attention.mamba.ops.ssd_bmm",
    "rope": "sglang.srt.layers.rotary_embedding",
}

F32, BF16, F16, I8, I32, I64, FP8, FP8B = torch.float32, torch.bfloat16, torch.float16, torch.int8, torch.int32, torch.int64, torch.float8_e4m3fn, torch.float8_e5m2


class Draw:
    """Tensors from a seed: sums of integers, so that every value is exact before its one rounding to a dtype."""

    def __init__(self, seed: int, device: str) -> None:
        self.rng, self.device = np.random.default_rng(seed), device

    def t(self, *shape: int, dtype: torch.dtype = BF16, scale: float = 1.0) -> torch.Tensor:
        sums = self.rng.integers(0, 65536, (4, *shape), dtype=np.int64).sum(0) - 131070
        values = torch.from_numpy(np.asarray(sums.astype(np.float32) * np.float32(2.0**-16 * scale)))
        if dtype == I8:
            return torch.clamp(torch.round(values * 48), -127, 127).to(I8).to(self.device)
        return values.to(dtype).to(self.device)

    def pos(self, *shape: int, low: float = 2.0**-6, scale: float = 2.0**-5, dtype: torch.dtype = F32) -> torch.Tensor:
        raw = self.rng.integers(0, 65536, shape).astype(np.float32) * np.float32(2.0**-16)
        return torch.from_numpy(np.asarray(raw * np.float32(scale) + np.float32(low))).to(dtype).to(self.device)

    def ints(self, low: int, high: int, *shape: int, dtype: torch.dtype = I32) -> torch.Tensor:
        return torch.from_numpy(np.asarray(self.rng.integers(low, high, shape, dtype=np.int64))).to(dtype).to(self.device)

    def perm(self, n: int, dtype: torch.dtype = I32) -> torch.Tensor:
        return torch.from_numpy(self.rng.permutation(n).astype(np.int64)).to(dtype).to(self.device)

    def like(self, values: Any, dtype: torch.dtype = I32) -> torch.Tensor:
        return torch.from_numpy(np.asarray(values, dtype=np.float64 if dtype.is_floating_point else np.int64)).to(dtype).to(self.device)

    def zeros(self, *shape: int, dtype: torch.dtype = BF16) -> torch.Tensor:
        return torch.zeros(shape, dtype=dtype, device=self.device)

    def choose(self, *options: Any) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def int(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def topk_ids(self, tokens: int, topk: int, experts: int, dtype: torch.dtype = I32) -> torch.Tensor:
        return self.like(np.stack([self.rng.permutation(experts)[:topk] for _ in range(tokens)]), dtype)


def aligned(d: Draw, ids: torch.Tensor, block: int, experts: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """What moe_align_block_size gives."""
    flat = ids.cpu().numpy().reshape(-1)
    slots, owners = [], []
    for expert in range(experts):
        mine = list(np.nonzero(flat == expert)[0])
        mine += [flat.size] * (-len(mine) % block)
        slots += mine
        owners += [expert] * (len(mine) // block)
    return d.like(slots), d.like(owners), d.like([len(slots)])


def csr(d: Draw, lengths: list[int], dtype: torch.dtype = I32) -> torch.Tensor:
    return d.like(np.concatenate([[0], np.cumsum(lengths)]), dtype)


# ---- attention

def decode(d: Draw, m: Any, B: int, H: int, KVH: int, Lk: int, Lv: int, splits: int = 4, dtype: torch.dtype = BF16, cap: float = 0.0, sinks: bool = False,
           slice_v: bool = False, kv: torch.dtype | None = None, longest: int = 90, xai: int = -1) -> dict:  # fmt: skip
    lengths = [d.int(1, longest) for _ in range(B)]
    tokens = sum(lengths) + 7
    kv = kv or dtype
    k = d.t(tokens, KVH, Lk, dtype=kv)
    v = k[..., :Lv] if slice_v else d.t(tokens, KVH, Lv, dtype=kv)
    q, o = d.t(B, H, Lk, dtype=dtype), d.zeros(B, H, Lv, dtype=dtype)
    logits, lse = d.zeros(B, H, splits, Lv, dtype=F32), d.zeros(B, H, splits, dtype=F32)
    counts = d.ints(1, splits + 1, B)
    m.decode.decode_attention_fwd(q, k, v, o, csr(d, lengths), d.perm(tokens)[: sum(lengths)].clone(), logits, lse, counts, splits, Lk**-0.5, logit_cap=cap,
                                  sinks=d.t(H, dtype=F32) if sinks else None, xai_temperature_len=xai)  # fmt: skip
    return {"o": o}


def extend(d: Draw, m: Any, B: int, H: int, KVH: int, Lq: int, Lv: int, dtype: torch.dtype = BF16, cap: float = 0.0, mask: bool = False, sinks: bool = False,
           window: int = -1, causal: bool = True, kv: torch.dtype | None = None, skip_prefix: bool = True, prefix: int = 40, longest: int = 40) -> dict:  # fmt: skip
    pre, ext = [d.int(0, prefix) for _ in range(B)], [d.int(1, longest) for _ in range(B)]
    total, pool = sum(ext), sum(pre) + 5
    kv = kv or dtype
    q, k, v, o = d.t(total, H, Lq, dtype=dtype), d.t(total, KVH, Lq, dtype=dtype), d.t(total, KVH, Lv, dtype=dtype), d.zeros(total, H, Lv, dtype=dtype)
    kb, vb = d.t(pool, KVH, Lq, dtype=kv), d.t(pool, KVH, Lv, dtype=kv)
    custom = mask_indptr = None
    if mask:
        sizes = [e * (p + e) for p, e in zip(pre, ext)]
        custom, mask_indptr = d.ints(0, 4, sum(sizes)).ne(0), csr(d, sizes, I64)
    m.extend.extend_attention_fwd(q, k, v, o, kb, vb, csr(d, ext), csr(d, pre), d.perm(pool, I64)[: max(1, sum(pre))].clone(), custom, causal, mask_indptr, max(ext), sm_scale=Lq**-0.5,
                                  logit_cap=cap, skip_prefix_custom_mask=skip_prefix, sliding_window_size=window, sinks=d.t(H, dtype=F32) if sinks else None)  # fmt: skip
    return {"o": o}


def extend_unified(d: Draw, m: Any, B: int, H: int, KVH: int, Lq: int, Lv: int, dtype: torch.dtype = BF16, cap: float = 0.0, window: int = -1, sinks: bool = False) -> dict:
    pre, ext = [d.int(0, 40) for _ in range(B)], [d.int(1, 40) for _ in range(B)]
    lengths = [p + e for p, e in zip(pre, ext)]
    pool = sum(lengths) + 3
    q, o = d.t(sum(ext), H, Lq, dtype=dtype), d.zeros(sum(ext), H, Lv, dtype=dtype)
    starts = d.like([0] * B) if window > 0 else None
    m.extend.extend_attention_fwd_unified(q, o, d.t(pool, KVH, Lq, dtype=dtype), d.t(pool, KVH, Lv, dtype=dtype), csr(d, ext), csr(d, lengths), d.perm(pool, I64)[: sum(lengths)].clone(), d.like(pre), max(ext),
                                          sm_scale=Lq**-0.5, logit_cap=cap, sliding_window_size=window, sinks=d.t(H, dtype=F32) if sinks else None, window_start_pos=starts)  # fmt: skip
    return {"o": o}


def unified_indices(d: Draw, m: Any, B: int) -> dict:
    pre, ext = [d.int(0, 700) for _ in range(B)], [d.int(1, 700) for _ in range(B)]
    result = m.extend.build_unified_kv_indices(csr(d, pre), d.perm(sum(pre) + 1, I64), d.like(np.cumsum([0, *ext])[:-1]), d.like(ext), d.perm(sum(ext), I64), B)
    return {"indptr": result[0], "indices": result[1][: sum(pre) + sum(ext)], "lens": result[2]}


def context(d: Draw, m: Any, B: int, H: int, KVH: int, D: int, dtype: torch.dtype = BF16, causal: bool = True) -> dict:
    lengths = [d.int(1, 150) for _ in range(B)]
    total = sum(lengths)
    o = d.zeros(total, H, D, dtype=dtype)
    m.prefill.context_attention_fwd(d.t(total, H, D, dtype=dtype), d.t(total, KVH, D, dtype=dtype), d.t(total, KVH, D, dtype=dtype), o, csr(d, lengths)[:-1].clone(), d.like(lengths), max(lengths), is_causal=causal)
    return {"o": o}


def merge_state(d: Draw, m: Any, T: int, H: int, D: int, dtype: torch.dtype = BF16) -> dict:
    a, b = d.t(T, H, D, dtype=dtype), d.t(T, H, D, dtype=dtype)
    sa, sb = d.t(T, H, dtype=F32, scale=4), d.t(T, H, dtype=F32, scale=4)
    sa[0, 0] = -math.inf
    sb[-1, -1] = math.inf
    out, lse = m.merge.merge_state_triton(a, sa, b, sb)
    return {"output": out, "lse": lse}


def sparse_decode(d: Draw, m: Any, B: int, H: int, D: int, dtype: torch.dtype = F16) -> dict:
    L, R = 96, 16
    req = d.like(np.stack([d.rng.permutation(B * L)[:L] for _ in range(B)]))
    heavy, o = 32, d.zeros(B, H, D, dtype=dtype)
    m.sparsity.flash_decode_sparse_attention_fwd(d.t(B, H, D, dtype=dtype), d.t(B * L, H, D, dtype=dtype), d.t(B * L, H, D, dtype=dtype), o, d.t(B, H, R, dtype=dtype), d.t(B * L, H, R, dtype=dtype), req,
                                                 d.like([L] * B), L, D**-0.5, 0.0, heavy, d.zeros(H, B, L, dtype=F32), d.zeros(B, H, 1, D, dtype=F32), d.zeros(B, H, 1, dtype=F32), 256)  # fmt: skip
    return {"o": o}


def flash_decode(d: Draw, m: Any, B: int, H: int, D: int, dtype: torch.dtype = F16) -> dict:
    L = 300
    mid, lse, o = d.zeros(B, H, 2, D, dtype=F32), d.zeros(B, H, 2, dtype=F32), d.zeros(B, H, D, dtype=dtype)
    lengths = d.ints(20, L, B)
    m.sparsity.flash_decode_stage1(d.t(B, H, D, dtype=dtype), d.t(L * B, H, D, dtype=dtype), d.t(L * B, H, D, dtype=dtype), d.like(np.arange(B * L).reshape(B, L)), d.like(np.arange(B)), lengths, L, mid, lse, 256)
    m.sparsity.flash_decode_stage2(mid, lse, lengths, o, 256)
    return {"o": o}


# ---- mixtures of experts

def fused_moe(d: Draw, m: Any, M: int, E: int, N: int, K: int, topk: int, kind: str = "bf16", block_m: int = 16, block_n: int = 64, block_k: int = 64, warps: int = 4, stages: int = 3, weighted: bool = False,
              bias: bool = False, group: tuple[int, int] | None = None, out: torch.dtype = BF16, c_sorted: bool = False, group_m: int = 8) -> dict:  # fmt: skip
    ids = d.topk_ids(M, topk, E)
    slots, owners, padded = aligned(d, ids, block_m, E)
    config = {"BLOCK_SIZE_M": block_m, "BLOCK_SIZE_N": block_n, "BLOCK_SIZE_K": block_k, "GROUP_SIZE_M": group_m, "num_warps": warps, "num_stages": stages}
    compute = {BF16: triton.language.bfloat16, F16: triton.language.float16, F32: triton.language.float32}[out]
    c = d.zeros(*((slots.numel(), N) if c_sorted else (M, topk, N)), dtype=out)
    flags = {"use_fp8_w8a8": False, "use_int8_w8a8": False, "use_int8_w8a16": False, "per_channel_quant": False}
    block_shape, a_scale, b_scale = None, None, None
    if kind in ("bf16", "f16"):
        a, b = d.t(M, K, dtype=BF16 if kind == "bf16" else F16), d.t(E, N, K, dtype=BF16 if kind == "bf16" else F16)
    elif kind == "fp8_block":
        block_shape = list(group or (128, 128))
        a, b = d.t(M, K, dtype=FP8, scale=32), d.t(E, N, K, dtype=FP8, scale=32)
        a_scale, b_scale = d.pos(M, -(-K // block_shape[1])), d.pos(E, -(-N // block_shape[0]), -(-K // block_shape[1]))
        flags["use_fp8_w8a8"] = True
    elif kind == "fp8_tensor":
        a, b, a_scale, b_scale = d.t(M, K, dtype=FP8, scale=32), d.t(E, N, K, dtype=FP8, scale=32), d.pos(1), d.pos(E)
        flags["use_fp8_w8a8"] = True
    elif kind == "fp8_channel":
        a, b, a_scale, b_scale = d.t(M, K, dtype=FP8, scale=32), d.t(E, N, K, dtype=FP8, scale=32), d.pos(M, 1), d.pos(E, N, 1)
        flags |= {"use_fp8_w8a8": True, "per_channel_quant": True}
    elif kind == "int8_channel":
        a, b, a_scale, b_scale = d.t(M, K, dtype=I8), d.t(E, N, K, dtype=I8), d.pos(M, 1), d.pos(E, N, 1)
        flags |= {"use_int8_w8a8": True, "per_channel_quant": True}
    elif kind == "int8_block":
        block_shape = list(group or (128, 128))
        a, b, a_scale, b_scale = d.t(M, K, dtype=I8), d.t(E, N, K, dtype=I8), d.pos(M, -(-K // block_shape[1])), d.pos(E, -(-N // block_shape[0]), -(-K // block_shape[1]))
        flags["use_int8_w8a8"] = True
    elif kind == "int8_w8a16":
        a, b, b_scale = d.t(M, K, dtype=BF16), d.t(E, N, K, dtype=I8), d.pos(E, N)
        flags["use_int8_w8a16"] = True
    else:
        raise ValueError(kind)
    weights = d.pos(M, topk, low=0.0, scale=1.0)
    bias_t = d.t(E, N, dtype=out) if bias else None
    grid = lambda META: (triton.cdiv(slots.shape[0], META["BLOCK_SIZE_M"]) * triton.cdiv(N, META["BLOCK_SIZE_N"]),)  # noqa: E731
    kernel = m.moe.fused_moe_kernel
    extra = {}
    names = getattr(kernel, "arg_names", [])
    if "c_sorted" in names:
        extra = {"c_sorted": c_sorted, "filter_expert": False}
    if "swap_ab" in names:
        extra["swap_ab"] = False
    kernel[grid](a, None, b, None, bias_t, c, a_scale, b_scale, weights, slots, owners, padded, N, K, slots.shape[0], ids.numel(), a.stride(0), a.stride(1), b.stride(0), b.stride(2), b.stride(1),
                 bias_t.stride(0) if bias else 0, bias_t.stride(1) if bias else 0, c.stride(-2), c.stride(-1), a_scale.stride(0) if a_scale is not None and a_scale.ndim == 2 else 0,
                 a_scale.stride(1) if a_scale is not None and a_scale.ndim == 2 else 0, b_scale.stride(0) if b_scale is not None and b_scale.ndim >= 2 else 0,
                 b_scale.stride(2) if b_scale is not None and b_scale.ndim == 3 else 0, b_scale.stride(1) if b_scale is not None and b_scale.ndim >= 2 else 0,
                 0 if block_shape is None else block_shape[0], 0 if block_shape is None else block_shape[1], MUL_ROUTED_WEIGHT=weighted, top_k=topk, compute_type=compute, even_Ks=K % block_k == 0, **flags, **extra, **config)  # fmt: skip
    return {"c": c}


def fused_moe_gptq(d: Draw, m: Any, M: int, E: int, N: int, K: int, topk: int, bits: int = 4, zp: bool = False, group: int = 64, block_m: int = 16, block_n: int = 64, block_k: int = 64, out: torch.dtype = BF16) -> dict:
    ids = d.topk_ids(M, topk, E)
    slots, owners, padded = aligned(d, ids, block_m, E)
    a, c = d.t(M, K, dtype=out), d.zeros(M, topk, N, dtype=out)
    b = d.ints(0, 256, E, N, K // 2 if bits == 4 else K, dtype=torch.uint8)
    scale = d.pos(E, N, K // group, dtype=out)
    zeros = d.ints(0, 256, E, N // 2 if bits == 4 else N, K // group, dtype=torch.uint8) if zp else None
    m.moe.fused_moe_kernel_gptq_awq[lambda META: (triton.cdiv(slots.shape[0], META["BLOCK_SIZE_M"]) * triton.cdiv(N, META["BLOCK_SIZE_N"]),)](
        a, b, c, scale, zeros, d.pos(M, topk), slots, owners, padded, N, K, slots.shape[0], ids.numel(), a.stride(0), a.stride(1), b.stride(0), b.stride(2), b.stride(1), c.stride(1), c.stride(2),
        scale.stride(0), scale.stride(2), scale.stride(1), zeros.stride(0) if zp else 0, zeros.stride(2) if zp else 0, zeros.stride(1) if zp else 0, group_size=group, MUL_ROUTED_WEIGHT=True, top_k=topk,
        compute_type=triton.language.bfloat16 if out == BF16 else triton.language.float16, has_zp=zp, use_int4_w4a16=bits == 4, use_int8_w8a16=bits == 8, even_Ks=K % block_k == 0, filter_expert=False,
        BLOCK_SIZE_M=block_m, BLOCK_SIZE_N=block_n, BLOCK_SIZE_K=block_k, GROUP_SIZE_M=1, num_warps=4, num_stages=3)  # fmt: skip
    return {"c": c}


def act_and_mul(d: Draw, m: Any, M: int, N: int, activation: str = "silu", dtype: torch.dtype = BF16) -> dict:
    out = d.zeros(M, N // 2, dtype=dtype)
    m.moe.act_and_mul_triton(d.t(M, N, dtype=dtype, scale=4), out, {"BLOCK_SIZE_M": 16}, d.ints(0, 8, M, 1), None, False, activation)
    return {"out": out}


def moe_sum_reduce(d: Draw, m: Any, T: int, topk: int, N: int, dtype: torch.dtype = BF16, factor: float = 2.5) -> dict:
    out = d.zeros(T, N, dtype=dtype)
    m.moe.moe_sum_reduce_triton(d.t(T, topk, N, dtype=dtype), out, factor)
    return {"out": out}


def append_shared(d: Draw, m: Any, T: int, K: int, S: int) -> dict:
    ids, weights = m.moe.fused_append_shared_experts(d.ints(0, 64, T, K), d.pos(T, K), S, 0.4, 64)
    return {"ids": ids, "weights": weights}


def router_cudacore(d: Draw, m: Any, T: int, E: int, H: int, topk: int, bias: bool = False, dtype: torch.dtype = BF16) -> dict:
    weights, ids = m.router.fused_moe_router_cudacore(d.t(T, H, dtype=dtype), d.t(E, H, dtype=dtype), topk, 30.0, d.t(E, dtype=F32) if bias else None)
    return {"weights": weights, "ids": ids}


def router_tensorcore(d: Draw, m: Any, T: int, E: int, H: int, topk: int, dtype: torch.dtype = BF16, bias: bool = False) -> dict:
    weights, ids = m.router.fused_moe_router_tensorcore(d.t(T, H, dtype=dtype), d.t(E, H, dtype=dtype), topk, 30.0, 32, E, 64, d.t(E, dtype=F32) if bias else None)
    return {"weights": weights, "ids": ids}


def ep_preprocess(d: Draw, m: Any, T: int, E: int, H: int, topk: int) -> dict:
    masked, _, src2dst, values, scales = m.ep.moe_ep_deepgemm_preprocess(d.topk_ids(T, topk, E, I64), E, d.t(T, H), topk, [128, 128])
    counts = masked.cpu().tolist()
    return {"masked_m": masked, "src2dst": src2dst, "values": torch.cat([values[e, :n].view(torch.uint8) for e, n in enumerate(counts)]), "scales": torch.cat([scales[e, :n] for e, n in enumerate(counts)])}


def ep_deep_preprocess(d: Draw, m: Any, T: int, E: int, topk: int) -> dict:
    reorder, src2dst, indptr = m.ep.deepep_run_moe_deep_preprocess(d.topk_ids(T, topk, E, I64), E)
    return {"reorder": reorder, "src2dst": src2dst, "indptr": indptr}


def ep_post_reorder(d: Draw, m: Any, T: int, H: int, topk: int, dtype: torch.dtype = BF16) -> dict:
    out = d.zeros(T, H, dtype=dtype)
    m.ep.post_reorder_triton_kernel[(T,)](d.t(T * topk, H, dtype=dtype), out, d.perm(T * topk), d.ints(-1, 8, T, topk), d.pos(T, topk), topk, H, BLOCK_SIZE=512)
    return {"out": out}


def ep_cutlass(d: Draw, m: Any, T: int, H: int, topk: int, E: int, dtype: torch.dtype = BF16) -> dict:
    ids = d.ints(0, E + 1, T, topk)
    gate, out, down = d.zeros(T * topk, H, dtype=FP8), d.zeros(T, H, dtype=dtype), d.t(T * topk, H, dtype=dtype)
    src = m.ep.cutlass_w4_run_moe_ep_preproess(ids)
    m.ep.pre_reorder_for_cutlass_moe(d.t(T, H, dtype=dtype), gate, src, ids, d.pos(1), E, topk, T, H)
    m.ep.post_reorder_for_cutlass_moe(down, out, src, ids, d.pos(T, topk), E, topk, T, H, 2.5)
    return {"src2dst": src, "gate": gate, "out": out}


def ep_silu_masked(d: Draw, m: Any, E: int, T: int, N: int, ue8m0: bool = False, dtype: torch.dtype = BF16) -> dict:
    out, scale, counts = d.zeros(E, T, N // 2, dtype=FP8), d.zeros(E, T, N // 256, dtype=F32), d.ints(0, T + 1, E)
    m.ep.silu_and_mul_masked_post_quant_fwd(d.t(E, T, N, dtype=dtype, scale=2), out, scale, 128, counts, ue8m0)
    return {"out": out, "scale": scale}


def ep_silu_tensor(d: Draw, m: Any, E: int, T: int, N: int) -> dict:
    out, counts = d.zeros(E, T, N // 2, dtype=FP8), d.ints(0, T + 1, E)
    m.ep.silu_and_mul_masked_post_per_tensor_quant_fwd(d.t(E, T, N), out, counts, d.pos(1))
    return {"out": out}


def ep_silu_static(d: Draw, m: Any, T: int, N: int) -> dict:
    out = d.zeros(T, N, dtype=FP8)
    m.ep.silu_mul_static_tensorwise_quant_for_cutlass_moe(d.t(T, 2 * N), out, d.pos(1), d.like([T - 1]), T, N)
    return {"out": out}


def ep_scatter(d: Draw, m: Any, T: int, H: int, E: int) -> dict:
    topk = 1  # one copy a token: more would take their slots by atomics, in any order
    ids = d.like(d.rng.permutation(E)[:T].reshape(T, 1), I64)
    counts = [int((ids == e).sum()) for e in range(E)]
    padded = [128 if count else 0 for count in counts]
    total = sum(padded)
    out, scale, index, owners, start = d.zeros(total, H, dtype=FP8), d.zeros(total, H // 128, dtype=F32), d.zeros(T, topk, dtype=I32), d.zeros(total, dtype=I32), d.zeros(E, dtype=I32)
    m.ep.ep_scatter(d.t(T, H, dtype=FP8), d.pos(T, H // 128), ids, d.like(padded), start, out, scale, owners, index)
    return {"out": out, "scale": scale, "index": index, "m_indices": owners}


def ep_gather(d: Draw, m: Any, T: int, H: int, topk: int, dtype: torch.dtype = BF16) -> dict:
    out = d.zeros(T, H, dtype=dtype)
    m.ep.ep_gather(d.t(T * topk, H, dtype=dtype), d.ints(-1, 8, T, topk, dtype=I64), d.pos(T, topk), d.perm(T * topk).view(T, topk), out)
    return {"out": out}


def ep_tma_align(d: Draw, m: Any, M: int, K: int) -> dict:
    return {"out": m.ep.tma_align_input_scale(d.pos(M, K)).contiguous()}


def ep_deepep_permute(d: Draw, m: Any, T: int, H: int, topk: int) -> dict:
    ids, order = d.ints(-1, 8, T, topk, dtype=I64), d.perm(T * topk, I64)
    gate, out = d.zeros(T * topk, H), d.zeros(T, H)
    m.ep.deepep_permute_triton_kernel[(T,)](d.t(T, H), gate, order, ids, None, topk, H, BLOCK_SIZE=512)
    m.ep.deepep_post_reorder_triton_kernel[(T,)](d.t(T * topk, H), out, order, ids, d.pos(T, topk, dtype=BF16), topk, H, BLOCK_SIZE=512)
    return {"gate": gate, "out": out}


def ep_w4a8_sizes(d: Draw, m: Any, E: int) -> dict:
    one, two = d.zeros(E, 3, dtype=I32), d.zeros(E, 3, dtype=I32)
    m.ep.compute_problem_sizes_w4a8(d.ints(0, 64, E), one, two, 512, 1024, E)
    return {"one": one, "two": two}


def ep_zero_experts(d: Draw, m: Any, T: int, H: int, topk: int) -> dict:
    return {"out": m.ep.zero_experts_compute_triton(d.ints(0, 12, T, topk, dtype=I64), d.pos(T, topk), 8, "identity", d.t(T, H))}


# ---- quantizers and products

def group_quant(d: Draw, m: Any, T: int, N: int, group: int = 128, column: bool = False, ue8m0: bool = False, to: torch.dtype = FP8, dtype: torch.dtype = BF16, tma: bool = False) -> dict:
    q, s = m.fp8._per_token_group_quant_8bit_raw(d.t(T, N, dtype=dtype, scale=4), group, dtype=to, column_major_scales=column, scale_tma_aligned=tma, scale_ue8m0=ue8m0)
    return {"q": q, "s": s.contiguous()}


def static_quant(d: Draw, m: Any, T: int, N: int, repeat: bool = False, dtype: torch.dtype = BF16) -> dict:
    q, s = m.fp8.static_quant_fp8(d.t(T, N, dtype=dtype, scale=4), d.pos(1), repeat)
    return {"q": q, "s": s.contiguous()}


def block_fp8_matmul(d: Draw, m: Any, M: int, N: int, K: int, out: torch.dtype = BF16) -> dict:
    return {"c": m.fp8.w8a8_block_fp8_matmul_triton(d.t(M, K, dtype=FP8, scale=32), d.t(N, K, dtype=FP8, scale=32), d.pos(M, -(-K // 128)), d.pos(-(-N // 128), -(-K // 128)), [128, 128], out)}


def block_int8_matmul(d: Draw, m: Any, M: int, N: int, K: int, out: torch.dtype = BF16) -> dict:
    return {"c": m.int8.w8a8_block_int8_matmul(d.t(M, K, dtype=I8), d.t(N, K, dtype=I8), d.pos(M, K // 128), d.pos(-(-N // 128), K // 128), [128, 128], out)}


def tensor_quant_mla(d: Draw, m: Any, T: int, H: int, D: int) -> dict:
    s = d.zeros(1, dtype=F32)
    x = d.t(T, H, D, scale=2)[..., : D - 64]
    q, s = m.fp8.per_tensor_quant_mla_fp8(x.transpose(0, 1), s)
    return {"q": q.contiguous(), "s": s}


def masked_quant_mla(d: Draw, m: Any, B: int, T: int, D: int) -> dict:
    q, s, counts, _, _ = m.fp8.per_token_group_quant_mla_deep_gemm_masked_fp8(d.t(B, T, D, scale=2))
    return {"q": q[:, :T].contiguous(), "s": s[:, :T].contiguous(), "counts": counts}


def hopper_mn_quant(d: Draw, m: Any, E: int, K: int) -> dict:
    sizes = [8 * d.int(1, 4) for _ in range(E)]
    q, s = m.fp8.per_token_group_quant_fp8_hopper_moe_mn_major(d.t(sum(sizes), K), csr(d, sizes), d.like([[n, 64, K] for n in sizes]), 128)
    return {"q": q, "s": s.contiguous()}


def group_transpose(d: Draw, m: Any, E: int, K: int) -> dict:
    sizes = [8 * d.int(1, 4) for _ in range(E)]
    return {"out": m.fp8.per_group_transpose(d.t(sum(sizes), K, dtype=F32), csr(d, sizes))}


def scaled_mm(d: Draw, m: Any, M: int, N: int, K: int, kind: str = "fp8", row: bool = True, bias: bool = False, out: torch.dtype = BF16) -> dict:
    dtype = FP8 if kind == "fp8" else I8
    a, b = d.t(M, K, dtype=dtype, scale=8 if kind == "fp8" else 1), d.t(N, K, dtype=dtype, scale=8 if kind == "fp8" else 1).t()
    return {"c": m.fp8.triton_scaled_mm(a, b, d.pos(M, 1) if row else d.pos(1, 1), d.pos(N, 1) if row else d.pos(1, 1), out, d.t(N, dtype=out) if bias else None)}


def per_token_int8(d: Draw, m: Any, T: int, N: int, dtype: torch.dtype = BF16, sums: bool = False) -> dict:
    got = m.int8.per_token_quant_int8(d.t(T, N, dtype=dtype, scale=4), cal_sum=sums)
    return dict(zip(("q", "s", "sum"), got))


def group_int8(d: Draw, m: Any, T: int, N: int, group: int = 128, dtype: torch.dtype = BF16) -> dict:
    q, s = m.int8.per_token_group_quant_int8(d.t(T, N, dtype=dtype, scale=4), group)
    return {"q": q, "s": s}


def awq_dequant(d: Draw, m: Any, K: int, N: int) -> dict:
    return {"out": m.awq.awq_dequantize_triton(d.ints(-(2**31), 2**31, K, N // 8), d.pos(K // 64, N, dtype=F16), d.ints(-(2**31), 2**31, K // 64, N // 8))}


def awq_gemm(d: Draw, m: Any, M: int, K: int, N: int, split: int = 2) -> dict:
    return {"out": m.awq.awq_gemm_triton(d.t(M, K, dtype=F16), d.ints(-(2**31), 2**31, K, N // 8), d.pos(K // 64, N, dtype=F16), d.ints(-(2**31), 2**31, K // 64, N // 8), split)}


def nsa_act_quant(d: Draw, m: Any, M: int, N: int, fmt: str | None = None) -> dict:
    q, s = m.nsa.act_quant(d.t(M, N, scale=4), 128, fmt)
    return {"q": q, "s": s}


def nsa_quant_k(d: Draw, m: Any, B: int) -> dict:
    out = m.quant_k._quantize_k_cache_fast_wrapped(d.t(B, 64, 1, 576, scale=2))
    back = m.dequant_k._dequantize_k_cache_fast_wrapped(out)
    return {"q": out.view(torch.uint8), "back": back}


def nsa_dequant_paged(d: Draw, m: Any, B: int) -> dict:
    out = m.quant_k._quantize_k_cache_fast_wrapped(d.t(B, 64, 1, 576, scale=2))
    return {"out": m.dequant_k.dequantize_k_cache_paged(out, d.ints(0, B * 64, 50))}


def nsa_index_buf(d: Draw, m: Any, P: int) -> dict:
    buf = d.ints(0, 256, P, 64 * (128 + 4), dtype=torch.uint8)
    n = 40
    m.index_buf._set_k_and_s_triton(buf, d.perm(P * 64, I64)[:n].clone(), d.t(n, 128, dtype=FP8), d.pos(n, 1), 64)
    pages = d.perm(P)
    k = m.index_buf._get_k_triton(buf, pages, P * 64 - 3, 64, 128)
    s = m.index_buf._get_s_triton(buf, pages, P * 64 - 3, 64, 128)
    both = m.index_buf._get_k_and_s_triton(buf, pages, P * 64 - 3, 64, 128)
    return {"buf": buf, "k": k, "s": s, "k2": both[0], "s2": both[1]}


def nsa_transform(d: Draw, m: Any, B: int) -> dict:
    return {"out": m.transform.transform_index_page_table_decode_fast(d.ints(0, 4096, B, 4096), d.ints(-1, 4096, B, 2048))}


# ---- norms, activations, batch-invariant ops

def rmsnorm_t(d: Draw, m: Any, T: int, H: int, dtype: torch.dtype = BF16) -> dict:
    return {"out": m.elementwise.fused_rmsnorm(d.t(T, H, dtype=dtype), d.t(H, dtype=dtype), 1e-6)}


def dual_rmsnorm(d: Draw, m: Any, T: int, H: int, dtype: torch.dtype = BF16) -> dict:
    a, b = m.elementwise.fused_dual_residual_rmsnorm(d.t(T, H, dtype=dtype), d.t(T, H, dtype=dtype), d.t(H, dtype=dtype), d.t(H, dtype=dtype), 1e-6)
    return {"out": a, "mid": b}


def softcap(d: Draw, m: Any, T: int, H: int, dtype: torch.dtype = BF16) -> dict:
    return {"out": m.elementwise.fused_softcap(d.t(T, H, dtype=dtype, scale=32), 30.0)}


def experts_combine(d: Draw, m: Any, T: int, H: int, K: int, dtype: torch.dtype = BF16) -> dict:
    return {"out": m.elementwise.experts_combine_triton(d.t(T, K, H, dtype=dtype) if K > 1 else d.t(T, H, dtype=dtype), d.t(T, H, dtype=dtype))}


def gated(d: Draw, m: Any, T: int, H: int, kind: str = "silu", dtype: torch.dtype = BF16) -> dict:
    out, _ = (m.elementwise.silu_and_mul_triton if kind == "silu" else m.elementwise.gelu_and_mul_triton)(d.t(T, 2 * H, dtype=dtype, scale=4))
    return {"out": out}


def matmul_persistent(d: Draw, m: Any, M: int, N: int, K: int, dtype: torch.dtype = BF16, bias: bool = False) -> dict:
    return {"c": m.batch._matmul_persistent_triton(d.t(M, K, dtype=dtype), d.t(K, N, dtype=dtype), d.t(N, dtype=dtype) if bias else None)}


def bmm_persistent(d: Draw, m: Any, B: int, M: int, N: int, K: int, dtype: torch.dtype = BF16) -> dict:
    return {"c": m.batch.bmm_batch_invariant(d.t(B, M, K, dtype=dtype), d.t(B, K, N, dtype=dtype))}


def log_softmax(d: Draw, m: Any, T: int, N: int, dtype: torch.dtype = BF16) -> dict:
    return {"out": m.batch.log_softmax(d.t(T, N, dtype=dtype, scale=8))}


def mean_dim(d: Draw, m: Any, A: int, B: int, C: int, dim: int, dtype: torch.dtype = BF16) -> dict:
    return {"out": m.batch.mean_dim(d.t(A, B, C, dtype=dtype), dim)}


def rms_norm_bi(d: Draw, m: Any, T: int, H: int, dtype: torch.dtype = BF16) -> dict:
    return {"out": m.batch.rms_norm(d.t(T, H, dtype=dtype), d.t(H, dtype=dtype))}


def l2norm(d: Draw, m: Any, T: int, H: int, dtype: torch.dtype = BF16) -> dict:
    return {"out": m.l2.l2norm_fwd(d.t(T, H, dtype=dtype))}


def gdn_gating(d: Draw, m: Any, B: int, H: int) -> dict:
    g, beta = m.gate.fused_gdn_gating(d.t(H, dtype=F32), d.t(B, H), d.t(B, H), d.t(H))
    return {"g": g, "beta": beta}


def norm_infer(d: Draw, m: Any, T: int, H: int, rms: bool, dtype: torch.dtype = BF16) -> dict:
    return {"out": m.diffusion.norm_infer(d.t(T, H, dtype=dtype), d.t(H, dtype=dtype), None if rms else d.t(H, dtype=dtype), 1e-6, is_rms_norm=rms)}


def scale_shift(d: Draw, m: Any, B: int, L: int, C: int, dtype: torch.dtype = BF16) -> dict:
    return {"out": m.diffusion.fuse_scale_shift_kernel(d.t(B, L, C, dtype=dtype), d.t(B, 1, C, dtype=dtype), d.t(B, 1, C, dtype=dtype))}


def selective_state(d: Draw, m: Any, B: int, dim: int, dstate: int) -> dict:
    state = d.t(B, dim, dstate, dtype=F32)
    out = d.zeros(B, dim, dtype=BF16)
    m.mamba.selective_state_update(state, d.t(B, dim), d.t(B, dim), -d.pos(dim, dstate), d.t(B, dstate), d.t(B, dstate), D=d.t(dim, dtype=F32), z=d.t(B, dim), dt_bias=d.t(dim, dtype=F32), dt_softplus=True, out=out)
    return {"out": out, "state": state}


def tensor_hash(d: Draw, m: Any, n: int) -> dict:
    return {"hash": d.like([(value := m.hash.gpu_tensor_hash(d.ints(-(2**31), 2**31, n))) & 0x7FFFFFFF, value >> 33], I64)}


# ---- indices

def kv_indices(d: Draw, m: Any, B: int) -> dict:
    pool = d.ints(0, 100000, 2 * B, 1500)
    lengths = [d.int(1, 1400) for _ in range(B)]
    out = d.zeros(sum(lengths), dtype=I32)
    m.attn_utils.create_flashinfer_kv_indices_triton[(B,)](pool, d.perm(2 * B)[:B].clone(), d.like(lengths), csr(d, lengths), None, out, pool.stride(0))
    return {"out": out}


def mla_kv_indices(d: Draw, m: Any, B: int) -> dict:
    pool = d.ints(0, 100000, 2 * B, 2048)
    lengths = d.ints(1, 2048, B)
    out = d.zeros(B, 64, dtype=I32)
    m.attn_utils.create_flashmla_kv_indices_triton[(B,)](pool, d.perm(2 * B)[:B].clone(), lengths, None, out, pool.stride(0), out.stride(0))
    return {"out": out}


def concat_mha_k(d: Draw, m: Any, T: int, H: int, dtype: torch.dtype = BF16) -> dict:
    out = d.zeros(T, H, 192, dtype=dtype)
    m.attn_utils.concat_and_cast_mha_k_triton(out, d.t(T, H, 128), d.t(T, 1, 64))
    return {"out": out}


def pad_sequence(d: Draw, m: Any, B: int, H: int) -> dict:
    lengths = [d.int(1, 30) for _ in range(B)]
    n, out, mask = m.attn_utils.pad_sequence_with_mask(d.t(sum(lengths), H), csr(d, lengths)[:-1].clone(), d.like(lengths), max(lengths))
    return {"out": out, "mask": mask}


def mla_buffer(d: Draw, m: Any, T: int, dtype: torch.dtype = BF16) -> dict:
    pool = d.zeros(100, 1, 576, dtype=dtype)
    loc = d.perm(100, I64)[:T].clone()
    m.mem.set_mla_kv_buffer_triton(pool, loc, d.t(T, 1, 512, dtype=dtype), d.t(T, 1, 64, dtype=dtype))
    a, b = d.zeros(T, 1, 512, dtype=dtype), d.zeros(T, 1, 64, dtype=dtype)
    m.mem.get_mla_kv_buffer_triton(pool, loc, a, b)
    return {"pool": pool, "a": a, "b": b}


def fp8_kv(d: Draw, m: Any, T: int, H: int, D: int, scaled: bool = True) -> dict:
    k, v = d.zeros(256, H, D, dtype=FP8), d.zeros(256, H, D, dtype=FP8)
    m.fp8kv.fused_fp8_set_kv_buffer(d.t(T, H, D), d.t(T, H, D), k, v, d.perm(256, I64)[:T].clone(), 0.5 if scaled else None, 0.25 if scaled else None, 16)
    return {"k": k, "v": v}


def last_loc(d: Draw, m: Any, B: int) -> dict:
    return {"out": m.memcommon.get_last_loc_triton(d.ints(0, 9999, 40, 64), d.ints(0, 40, B, dtype=I64), d.ints(0, 64, B, dtype=I64))}


def alloc_extend(d: Draw, m: Any, B: int, page: int) -> dict:
    pre, ext = [d.int(0, 100) for _ in range(B)], [d.int(1, 200) for _ in range(B)]
    total = sum(ext)
    out = d.zeros(total, dtype=I64)
    last = [page * (3 + 7 * b) + (p - 1) % page for b, p in enumerate(pre)]
    m.allocator.alloc_extend_kernel[(B,)](d.like(pre, I64), d.like([p + e for p, e in zip(pre, ext)], I64), d.like(last, I64), d.perm(1000, I64), out, triton.next_power_of_2(B), page, triton.next_power_of_2(max(ext)))
    return {"out": out}


def alloc_decode(d: Draw, m: Any, B: int, page: int) -> dict:
    lengths = [d.int(1, 300) for _ in range(B)]
    out = d.zeros(B, dtype=I64)
    m.allocator.alloc_decode_kernel[(B,)](d.like(lengths, I64), d.like([page * 9 * b + (n - 2) % page for b, n in enumerate(lengths)], I64), d.perm(1000, I64), out, triton.next_power_of_2(B), page)
    return {"out": out}


def positions(d: Draw, m: Any, B: int) -> dict:
    ext = [d.int(1, 700) for _ in range(B)]
    p, starts = m.batch_info.compute_position_triton(d.ints(0, 50, B), d.like(ext), sum(ext))
    return {"positions": p, "starts": starts}


def chunked_prefix(d: Draw, m: Any, B: int) -> dict:
    pool, lengths = d.ints(0, 9999, B + 3, 1000), [d.int(1, 600) for _ in range(B)]
    out = d.zeros(sum(lengths), dtype=I32)
    m.batch_info.create_chunked_prefix_cache_kv_indices[(B,)](pool, d.perm(B + 3)[:B].clone(), d.ints(0, 300, B), d.like(lengths), csr(d, lengths), out, pool.stride(0))
    return {"out": out}


def kv_splits(d: Draw, m: Any, B: int, heads: int, kv_heads: int) -> dict:
    out = d.zeros(B, dtype=I32)
    m.tb.get_num_kv_splits_triton[(1,)](out, d.ints(1, 3000, B), B, 1, heads, kv_heads, 8, 132, MAX_NUM_SEQ=256)
    return {"out": out}


def spec_positions(d: Draw, m: Any, B: int) -> dict:
    accept = [d.int(1, 4) for _ in range(B)]
    out, ids = d.zeros(sum(accept), dtype=I64), d.zeros(B, dtype=I32)
    m.spec.create_extend_after_decode_spec_info[(B,)](d.ints(0, 999, sum(accept)), d.ints(5, 99, B, dtype=I64), d.like(accept), out, ids, max(2, triton.next_power_of_2(B)))
    return {"positions": out, "ids": ids}


def spec_pool(d: Draw, m: Any, B: int) -> dict:
    start, count = [d.int(0, 40) for _ in range(B)], [d.int(1, 30) for _ in range(B)]
    table = d.zeros(B + 2, 128, dtype=I32)
    m.spec.assign_req_to_token_pool[(B,)](d.perm(B + 2, I64)[:B].clone(), table, d.like(start, I64), d.like([a + b for a, b in zip(start, count)], I64), d.ints(0, 9999, sum(count), dtype=I64), 128, triton.next_power_of_2(B))
    return {"table": table}


def spec_target_loc(d: Draw, m: Any, B: int) -> dict:
    n = 4
    accept = d.ints(0, n, B)
    keep, free = d.zeros(B * n, dtype=I64), d.zeros(B * n, dtype=I64)
    m.spec.get_target_cache_loc[(B,)](keep, free, accept, n - 1 - accept, d.ints(0, 9999, B * n, dtype=I64), n, triton.next_power_of_2(n), triton.next_power_of_2(B))
    return {"keep": keep, "free": free}


def spec_evict_mask(d: Draw, m: Any, B: int) -> dict:
    mask = d.ints(0, 2, B * 8).ne(0)
    m.spec.align_evict_mask_to_page_size[(B,)](d.ints(1, 99, B, dtype=I64), mask, 4, 8, 8)
    return {"mask": mask}


def spec_draft_indices(d: Draw, m: Any, B: int, topk: int) -> dict:
    steps, pool = 3, d.ints(0, 9999, B, 128)
    lengths = d.ints(1, 60, B)
    total = int(lengths.sum()) * topk + B * topk * steps * steps
    out, indptr = d.zeros(steps, total, dtype=I32), d.zeros(steps, B * topk + 1, dtype=I32)
    m.spec.generate_draft_decode_kv_indices[(steps, B, topk)](d.perm(B), pool, lengths, out, indptr, lengths.repeat_interleave(topk).contiguous(), 128, total, B * topk + 1, triton.next_power_of_2(B), triton.next_power_of_2(steps), triton.next_power_of_2(B * topk), 1)
    return {"indptr": indptr, "indices": out}


def spec_finished(d: Draw, m: Any, B: int) -> dict:
    accept = d.ints(0, 4, B)
    keep = (accept + 1) * d.ints(0, 2, B)
    out = d.zeros(int((accept + 1).sum()), dtype=I64)
    m.spec.filter_finished_cache_loc_kernel[(B,)](out, d.ints(0, 9999, int((accept + 1).sum()), dtype=I64), accept, keep, triton.next_power_of_2(B), 4)
    return {"out": out}


def rotate_ids(d: Draw, m: Any, B: int) -> dict:
    lengths = [d.int(2, 60) for _ in range(B)]
    ids = d.ints(0, 9999, sum(lengths))
    m.eagle_multi.rotate_input_ids_triton(ids, csr(d, lengths)[:-1].clone(), d.like(lengths), d.ints(0, 9999, B, dtype=I64))
    return {"ids": ids}


def new_verified(d: Draw, m: Any, B: int) -> dict:
    out = d.zeros(B, dtype=I32)
    m.eagle2.fill_new_verified_id[(B,)](d.ints(0, 999, B * 4), d.ints(1, 5, B), out, 4)
    return {"out": out}


def extend_locs(d: Draw, m: Any, B: int) -> dict:
    start = d.ints(0, 60, B, dtype=I64)
    out = d.zeros(B * 4, dtype=I64)
    m.eagle2.assign_extend_cache_locs[(B,)](d.perm(B, I64), d.ints(0, 9999, B, 128), start, start + 4, out, 128, triton.next_power_of_2(B))
    return {"out": out}


def accepted_loc(d: Draw, m: Any, n: int) -> dict:
    index = d.ints(-1, n, n)
    out = d.zeros(n, dtype=I64)
    m.eagle2.fill_accepted_out_cache_loc[(n,)](index, d.ints(0, 9999, n, dtype=I64), out, triton.next_power_of_2(n))
    return {"out": out}


def bitmask(d: Draw, m: Any, B: int, V: int, dtype: torch.dtype = F32) -> dict:
    logits = d.t(B, V, dtype=dtype)
    m.bitmask.apply_token_bitmask_inplace_triton(logits, d.ints(-(2**31), 2**31, B, -(-V // 32)))
    return {"logits": logits}


def draft_pad(d: Draw, m: Any, B: int, H: int, D: int) -> dict:
    lengths = [d.int(1, 4) for _ in range(B)]
    q, out = d.t(sum(lengths), H, D), d.zeros(B, 4, H, D)
    grid = (B * 4, triton.cdiv(H, 1), triton.cdiv(D, 64))
    grid = (B * 4 * H * D // 64 + 1,)
    m.trtllm.pad_draft_extend_query_kernel[(B * 4, H, triton.cdiv(D, 64))](q, out, d.like(lengths), csr(d, lengths), B, 4, H, D, BLOCK_SIZE=64)
    return {"out": out}


def swa_table(d: Draw, m: Any, B: int) -> dict:
    out = d.zeros(B * 2, 96, dtype=I32)
    m.fa.prepare_swa_spec_page_table_triton(out, d.ints(0, 999, B, 64), d.ints(0, 999, B * 2, 32), d.ints(1, 60, B), d.ints(1, 30, B * 2), 2)
    return {"out": out}


def dp_copy(d: Draw, m: Any, n: int) -> dict:
    dst = d.zeros(n + 64, 32)
    m.dp.memcpy_triton(dst, d.t(n, 32), 0, d.like([9], I64), d.like([n - 3], I64), False)
    return {"dst": dst}


def flashinfer_cascade(d: Draw, m: Any, T: int, H: int, D: int, dtype: torch.dtype = BF16) -> dict:
    a, lse = d.zeros(T, H, D, dtype=dtype), d.zeros(T, H, dtype=F32)
    m.fi_cascade.merge_state_kernel[(T,)](d.t(T, H, D, dtype=dtype), d.t(T, H, dtype=F32), d.t(T, H, D, dtype=dtype), d.t(T, H, dtype=F32), a, lse, H, D, bdx=D, bdy=H)
    v, s = d.t(T, H, D, dtype=dtype), d.t(T, H, dtype=F32)
    m.fi_cascade.merge_state_in_place_kernel[(T,)](v, s, d.t(T, H, D, dtype=dtype), d.t(T, H, dtype=F32), H, D, d.ints(0, 2, T, dtype=torch.uint8), bdx=D, bdy=H)
    b, lse2 = d.zeros(T, H, D, dtype=dtype), d.zeros(T, H, dtype=F32)
    m.fi_cascade.merge_states_kernel[(T,)](d.t(T, 5, H, D, dtype=dtype), d.t(T, 5, H, dtype=F32), b, lse2, 5, H, D, bdx=D, bdy=H)
    return {"merged": a, "lse": lse, "v": v, "s": s, "many": b, "lse2": lse2}


def flashinfer_rms(d: Draw, m: Any, T: int, H: int, residual: bool = False, scaled: bool = False, dtype: torch.dtype = BF16) -> dict:
    x, r, o = d.t(T, H, dtype=dtype), d.t(T, H, dtype=dtype) if residual else None, d.zeros(T, H, dtype=FP8 if scaled else dtype)
    m.fi_norm.rms_norm_kernel[(T,)](n=H, b=T, x_ptr=x, x_stride=x.stride(0), x_scale_ptr=None, r_ptr=r, r_stride=r.stride(0) if residual else 0, w_ptr=d.t(H, dtype=dtype), o_ptr=o, o_stride=o.stride(0),
        o_scale_ptr=d.pos(1) if scaled else None, EPS=1e-6, BLOCK_SIZE=triton.next_power_of_2(H), HAS_IN_SCALE=False, HAS_OUT_SCALE=scaled, HAS_OUTPUT=True, HAS_RESIDUAL=residual, num_warps=8)  # fmt: skip
    return {"o": o} | ({"r": r} if residual else {})


def flashinfer_silu(d: Draw, m: Any, T: int, H: int, scaled: bool = False, dtype: torch.dtype = BF16) -> dict:
    x, o = d.t(T, 2 * H, dtype=dtype), d.zeros(T, H, dtype=FP8 if scaled else dtype)
    m.fi_act.silu_and_mul_kernel[(T, triton.cdiv(H, 256))](o_ptr=o, o_stride=o.stride(0), o_scale_ptr=d.pos(1) if scaled else None, x_ptr=x, x_stride=x.stride(0), x_scale_ptr=None, d=H, BLOCK_SIZE=256, HAS_X_SCALE=False, HAS_O_SCALE=scaled)
    return {"o": o}


def flashinfer_gemm(d: Draw, m: Any, M: int, N: int, K: int, block: tuple[int, int, int] = (128, 128, 64), dtype: torch.dtype = BF16, persistent: bool = True, warps: int = 4) -> dict:
    a, b, c = d.t(M, K, dtype=dtype), d.t(K, N, dtype=dtype), d.zeros(M, N, dtype=dtype)
    kernel = m.fi_gemm.gemm_kernel_persistent if persistent else m.fi_gemm.gemm_kernel
    extra = {"NUM_SMS": 8} if persistent else {}
    tiles = triton.cdiv(M, block[0]) * triton.cdiv(N, block[1])
    kernel.fn[(min(8, tiles) if persistent else tiles,)](a, b, c, M, N, K, a.stride(0), a.stride(1), b.stride(0), b.stride(1), c.stride(0), c.stride(1), 1.0, 0.0, BLOCK_SIZE_M=block[0], BLOCK_SIZE_N=block[1], BLOCK_SIZE_K=block[2], GROUP_SIZE_M=8, num_warps=warps, num_stages=3, **extra)
    return {"c": c}


CASES: list[tuple[str, Callable, dict]] = []


def add(function: Callable, *variants: dict) -> None:
    for number, params in enumerate(variants):
        CASES.append((f"{function.__name__}.{number}", function, params))


add(decode, dict(B=2, H=16, KVH=1, Lk=576, Lv=512, slice_v=True), dict(B=1, H=32, KVH=1, Lk=576, Lv=512, dtype=F16, slice_v=True), dict(B=2, H=8, KVH=2, Lk=128, Lv=128, cap=30.0), dict(B=2, H=4, KVH=4, Lk=192, Lv=128),
    dict(B=2, H=4, KVH=4, Lk=128, Lv=128, dtype=F16, sinks=True), dict(B=2, H=16, KVH=1, Lk=288, Lv=256), dict(B=1, H=16, KVH=1, Lk=576, Lv=512, kv=FP8, slice_v=True), dict(B=2, H=8, KVH=4, Lk=64, Lv=64, sinks=True),
    dict(B=2, H=8, KVH=1, Lk=128, Lv=128, dtype=F16, cap=20.0, xai=64), dict(B=1, H=4, KVH=4, Lk=64, Lv=64, kv=FP8), dict(B=2, H=12, KVH=2, Lk=80, Lv=80), dict(B=2, H=4, KVH=4, Lk=256, Lv=256, cap=50.0))  # fmt: skip
add(extend, dict(B=2, H=4, KVH=4, Lq=192, Lv=128), dict(B=1, H=16, KVH=1, Lq=576, Lv=512), dict(B=2, H=4, KVH=2, Lq=128, Lv=128, cap=30.0), dict(B=2, H=2, KVH=2, Lq=64, Lv=64, mask=True), dict(B=2, H=4, KVH=1, Lq=128, Lv=128, dtype=F16, sinks=True),
    dict(B=2, H=4, KVH=2, Lq=128, Lv=128, window=16), dict(B=2, H=2, KVH=1, Lq=256, Lv=256), dict(B=2, H=2, KVH=2, Lq=96, Lv=96, causal=False), dict(B=2, H=4, KVH=4, Lq=128, Lv=128, kv=FP8), dict(B=1, H=4, KVH=1, Lq=288, Lv=256),
    dict(B=2, H=2, KVH=2, Lq=128, Lv=128, mask=True, skip_prefix=False, sinks=True), dict(B=2, H=4, KVH=4, Lq=192, Lv=128, dtype=F16))  # fmt: skip
add(extend_unified, dict(B=2, H=4, KVH=2, Lq=128, Lv=128), dict(B=2, H=4, KVH=4, Lq=192, Lv=128), dict(B=1, H=4, KVH=1, Lq=64, Lv=64, window=16, dtype=F16), dict(B=2, H=4, KVH=1, Lq=576, Lv=512), dict(B=2, H=2, KVH=1, Lq=128, Lv=128, sinks=True, cap=30.0))
add(unified_indices, dict(B=3))
add(context, dict(B=2, H=4, KVH=4, D=128), dict(B=2, H=4, KVH=2, D=128), dict(B=2, H=2, KVH=2, D=64, dtype=F16, causal=False), dict(B=1, H=2, KVH=2, D=192), dict(B=2, H=2, KVH=1, D=80), dict(B=2, H=2, KVH=2, D=64), dict(B=1, H=2, KVH=2, D=256))
add(merge_state, dict(T=9, H=4, D=128), dict(T=5, H=3, D=192, dtype=F16), dict(T=4, H=2, D=64, dtype=F32), dict(T=6, H=16, D=512))
add(sparse_decode, dict(B=2, H=4, D=128), dict(B=2, H=4, D=64, dtype=BF16))
add(flash_decode, dict(B=2, H=4, D=64), dict(B=1, H=4, D=128, dtype=BF16))
add(fused_moe, dict(M=5, E=8, N=128, K=256, topk=2), dict(M=33, E=4, N=192, K=320, topk=2, block_m=64, block_n=128, weighted=True, warps=8), dict(M=4, E=8, N=128, K=256, topk=2, kind="fp8_block", block_n=128, block_k=128, weighted=True),
    dict(M=70, E=4, N=256, K=256, topk=2, kind="fp8_block", block_m=64, block_n=128, block_k=128), dict(M=6, E=4, N=128, K=256, topk=2, kind="fp8_tensor", block_k=128), dict(M=70, E=4, N=128, K=256, topk=2, kind="fp8_tensor", block_m=64, block_n=128, block_k=128, stages=4),
    dict(M=6, E=4, N=128, K=256, topk=2, kind="fp8_channel", block_k=128), dict(M=6, E=4, N=128, K=256, topk=2, kind="int8_channel", block_k=128), dict(M=66, E=4, N=128, K=256, topk=2, kind="int8_channel", block_m=64, block_k=128), dict(M=6, E=4, N=128, K=256, topk=2, kind="int8_block", block_n=128, block_k=128),
    dict(M=6, E=4, N=128, K=256, topk=2, kind="int8_w8a16"), dict(M=5, E=8, N=128, K=256, topk=2, kind="f16", out=F16, bias=True), dict(M=130, E=2, N=256, K=128, topk=1, block_m=128, block_n=256, block_k=64, warps=8), dict(M=9, E=4, N=96, K=200, topk=2, block_k=32),
    dict(M=5, E=8, N=128, K=256, topk=2, block_k=128, stages=2), dict(M=40, E=4, N=128, K=512, topk=2, kind="fp8_block", block_m=32, block_n=64, block_k=128, group=(64, 128)), dict(M=5, E=8, N=64, K=256, topk=2, out=F32, block_n=32, block_k=64), dict(M=130, E=2, N=256, K=256, topk=1, kind="fp8_block", block_m=128, block_n=128, block_k=128, warps=8, group_m=1),
    dict(M=5, E=8, N=128, K=256, topk=2, warps=8, block_n=128), dict(M=30, E=4, N=128, K=256, topk=2, block_m=32, block_n=32, warps=4, stages=4))  # fmt: skip
add(fused_moe_gptq, dict(M=5, E=4, N=128, K=256, topk=2), dict(M=5, E=4, N=128, K=256, topk=2, zp=True), dict(M=5, E=4, N=128, K=256, topk=2, bits=8, out=F16), dict(M=40, E=4, N=128, K=256, topk=2, block_m=64, zp=True, out=F16))
add(act_and_mul, dict(M=8, N=512), dict(M=5, N=768, activation="gelu"), dict(M=5, N=768, dtype=F16))
add(moe_sum_reduce, dict(T=5, topk=8, N=1024), dict(T=33, topk=4, N=512, dtype=F16), dict(T=7, topk=6, N=300, dtype=F32))
add(append_shared, dict(T=5, K=8, S=1), dict(T=9, K=4, S=1))
add(router_cudacore, dict(T=5, E=8, H=512, topk=1), dict(T=5, E=8, H=1000, topk=2, dtype=F16))
add(router_tensorcore, dict(T=33, E=16, H=512, topk=1), dict(T=64, E=32, H=256, topk=2, dtype=F16))
add(ep_preprocess, dict(T=9, E=8, H=512, topk=4), dict(T=20, E=4, H=1024, topk=2))
add(ep_deep_preprocess, dict(T=9, E=8, topk=4))
add(ep_post_reorder, dict(T=7, H=1000, topk=4), dict(T=7, H=512, topk=2, dtype=F16))
add(ep_cutlass, dict(T=7, H=1024, topk=4, E=6), dict(T=5, H=512, topk=2, E=6, dtype=F16))
add(ep_silu_masked, dict(E=3, T=8, N=512), dict(E=2, T=5, N=1024, ue8m0=True))
add(ep_silu_tensor, dict(E=3, T=8, N=512))
add(ep_silu_static, dict(T=6, N=512))
add(ep_scatter, dict(T=5, H=512, E=8))
add(ep_gather, dict(T=6, H=1024, topk=4), dict(T=6, H=512, topk=2, dtype=F16))
add(ep_tma_align, dict(M=37, K=20))
add(ep_deepep_permute, dict(T=6, H=1000, topk=4))
add(ep_w4a8_sizes, dict(E=33))
add(ep_zero_experts, dict(T=5, H=600, topk=4))
add(group_quant, dict(T=7, N=512), dict(T=7, N=512, column=True), dict(T=8, N=1024, column=True, tma=True), dict(T=5, N=256, group=64), dict(T=5, N=512, to=I8), dict(T=5, N=512, dtype=F16), dict(T=9, N=384, dtype=F32), dict(T=5, N=768, group=256, to=I8, dtype=F16), dict(T=4, N=512, group=32, column=True))
add(static_quant, dict(T=5, N=512), dict(T=5, N=1000, repeat=True), dict(T=5, N=512, dtype=F16))
add(block_fp8_matmul, dict(M=5, N=256, K=512), dict(M=70, N=256, K=512, out=F16), dict(M=20, N=300, K=400, out=F32), dict(M=130, N=512, K=256))
add(block_int8_matmul, dict(M=5, N=256, K=512), dict(M=70, N=256, K=256, out=F16))
add(tensor_quant_mla, dict(T=7, H=4, D=192))
add(masked_quant_mla, dict(B=3, T=7, D=512))
add(hopper_mn_quant, dict(E=3, K=512))
add(group_transpose, dict(E=3, K=64))
add(scaled_mm, dict(M=20, N=128, K=256), dict(M=70, N=130, K=256, row=False, bias=True), dict(M=20, N=128, K=256, kind="int8"), dict(M=200, N=256, K=256, out=F16), dict(M=70, N=128, K=256, kind="int8", row=False, out=F16))
add(per_token_int8, dict(T=5, N=512), dict(T=5, N=1000, sums=True), dict(T=5, N=7168, dtype=F16), dict(T=3, N=300, dtype=F32))
add(group_int8, dict(T=5, N=512), dict(T=5, N=512, group=64, dtype=F16))
add(awq_dequant, dict(K=128, N=256))
add(awq_gemm, dict(M=5, K=256, N=128), dict(M=40, K=128, N=256, split=1))
add(nsa_act_quant, dict(M=40, N=512), dict(M=5, N=256, fmt="ue8m0"))
add(nsa_quant_k, dict(B=2))
add(nsa_dequant_paged, dict(B=2))
add(nsa_index_buf, dict(P=3))
add(nsa_transform, dict(B=2))
add(rmsnorm_t, dict(T=5, H=1024), dict(T=5, H=1000, dtype=F16), dict(T=3, H=512, dtype=F32))
add(dual_rmsnorm, dict(T=5, H=1024), dict(T=5, H=768, dtype=F16))
add(softcap, dict(T=5, H=1000), dict(T=5, H=512, dtype=F32))
add(experts_combine, dict(T=5, H=512, K=2), dict(T=5, H=600, K=1, dtype=F16))
add(gated, dict(T=5, H=512), dict(T=5, H=600, kind="gelu"), dict(T=5, H=600, dtype=F16), dict(T=5, H=512, kind="gelu", dtype=F32))
add(matmul_persistent, dict(M=5, N=256, K=320), dict(M=140, N=130, K=200, dtype=F16), dict(M=70, N=128, K=128, dtype=F32, bias=True), dict(M=130, N=256, K=512, bias=True))
add(bmm_persistent, dict(B=3, M=20, N=128, K=192), dict(B=2, M=130, N=64, K=128, dtype=F16), dict(B=2, M=20, N=64, K=64, dtype=F32))
add(log_softmax, dict(T=5, N=3000), dict(T=4, N=1000, dtype=F32))
add(mean_dim, dict(A=5, B=40, C=30, dim=1), dict(A=4, B=3, C=3000, dim=2, dtype=F32))
add(rms_norm_bi, dict(T=5, H=2048), dict(T=5, H=7168, dtype=F16), dict(T=5, H=300, dtype=F32))
add(l2norm, dict(T=20, H=128), dict(T=7, H=1024, dtype=F16))
add(gdn_gating, dict(B=5, H=16))
add(norm_infer, dict(T=5, H=1024, rms=True), dict(T=5, H=768, rms=False, dtype=F16))
add(scale_shift, dict(B=2, L=40, C=256), dict(B=1, L=20, C=300, dtype=F16))
add(selective_state, dict(B=2, dim=64, dstate=16), dict(B=2, dim=128, dstate=128))
add(tensor_hash, dict(n=20000))
for function in (kv_indices, mla_kv_indices, last_loc, positions, chunked_prefix, spec_positions, spec_pool, spec_target_loc, spec_evict_mask, spec_finished, rotate_ids, new_verified, extend_locs):
    add(function, dict(B=3), dict(B=7))
add(concat_mha_k, dict(T=5, H=16), dict(T=5, H=16, dtype=FP8))
add(pad_sequence, dict(B=3, H=100))
add(mla_buffer, dict(T=20), dict(T=5, dtype=F16))
add(fp8_kv, dict(T=9, H=4, D=128), dict(T=9, H=2, D=64, scaled=False))
add(alloc_extend, dict(B=3, page=16), dict(B=5, page=64))
add(alloc_decode, dict(B=3, page=16))
add(kv_splits, dict(B=5, heads=16, kv_heads=1), dict(B=17, heads=8, kv_heads=8))
add(spec_draft_indices, dict(B=3, topk=2), dict(B=2, topk=1))
add(accepted_loc, dict(n=12))
add(bitmask, dict(B=3, V=3000), dict(B=2, V=1000, dtype=BF16))
add(draft_pad, dict(B=3, H=16, D=576))
add(swa_table, dict(B=3))
add(dp_copy, dict(n=50))
add(flashinfer_cascade, dict(T=5, H=4, D=128), dict(T=5, H=8, D=64, dtype=F16))
add(flashinfer_rms, dict(T=5, H=1024), dict(T=5, H=1000, residual=True))
add(flashinfer_silu, dict(T=5, H=512), dict(T=5, H=300, dtype=F16))
add(flashinfer_gemm, dict(M=130, N=256, K=192), dict(M=70, N=130, K=200, dtype=F16, warps=8), dict(M=130, N=128, K=128, persistent=False), dict(M=40, N=64, K=96, persistent=False, block=(64, 64, 32)), dict(M=64, N=64, K=128, block=(64, 256, 64), dtype=F16), dict(M=64, N=64, K=128, block=(64, 64, 128), persistent=False, dtype=F32))
