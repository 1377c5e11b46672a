#!/usr/bin/env python3
"""Runs FP8 mixture-of-experts layers of DeepSeek-R1 or V3.2 from the kernels that serving ships, and writes what every model op gave.

    dodona layer --preset r1 --kv-len 1024 --batch 16 --backend flashmla --experts triton --trail step.safetensors --trail-tensors
    python3 replay_layer.py step.safetensors --out dump.safetensors        # on an H100: reads what the step reads, and its setting
    dodona layer --preset r1 --kv-len 1024 --batch 16 --backend flashmla --experts triton --mode hopper --against dump.safetensors

`--preset v3.2` for a step of one, here and there: its indexer chooses what FlashMLA's sparse kernels attend to, of a cache in bf16 or in rows of 656 bytes (--kv-cache-dtype fp8_e4m3).

Kernels: sgl-kernel's norms, quantizer, rope, router and sums, DeepGEMM's fp8_gemm_nt, cuBLAS (torch.bmm), FlashMLA's dense decode (in prefill
sglang's Triton extend_attention_fwd), sglang's Triton fused_moe_kernel with its default tiles; of the indexer torch's layer norm and fp32 product,
sgl-kernel's Hadamard transform and selection, DeepGEMM's fp8_paged_mqa_logits, sglang's Triton act_quant, stores and quantize_k_cache. `--layers 3` goes on through the next two, each
with a dump of its own, dump.1.safetensors and dump.2.safetensors, that holds its hidden states too. Weights are made here from the seed, as src/model/weights/synthetic.h has them: a Philox
stream for each tensor's name. `--kernels dodona` takes each kernel's hopper mode in its place (no GPU needed): a rehearsal. `--check` runs
that too on each kernel's own inputs, and counts the elements that differ. `--tensors` keeps the outputs beside their digests.
"""
import argparse, hashlib, json, math, struct, sys, time
import torch

R1 = dict(H=7168, Nh=128, Lq=1536, Lkv=512, Dn=128, Dr=64, Dv=128, I=2048, E=256, K=8, G=8, TG=4, rsf=2.5, eps=1e-6)
TINY = dict(R1, H=256, Nh=4, Lq=256, I=128, E=16, K=4, G=4, TG=2)
V32 = dict(R1, heads=64, width=128, topk=2048)  # of its indexer
SHAPES = {"r1": R1, "tiny-fp8": TINY, "v3.2": V32}
BF16, E4M3, F32, I32 = torch.bfloat16, torch.float8_e4m3fn, torch.float32, torch.int32


# ---- weights from the seed


def words(seed, name, count, device):
    """Philox4x32-10 of the stream of that name, `count` words, as int64."""
    identity = 0xCBF29CE484222325
    for byte in name.encode():
        identity = (identity ^ byte) * 0x100000001B3 % 2**64
    block = torch.arange((count + 3) // 4, dtype=torch.int64, device=device)
    full = lambda value: torch.full_like(block, value)
    c, low = [block, full(0), full(identity & 0xFFFFFFFF), full(identity >> 32)], 0xFFFFFFFF
    k0, k1 = seed & low, seed >> 32
    for _ in range(10):
        p0, p1 = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57  # of 64 bits: the sign is one of them
        c = [(p1 >> 32 & low) ^ c[1] ^ k0, p1 & low, (p0 >> 32 & low) ^ c[3] ^ k1, p0 & low]
        k0, k1 = (k0 + 0x9E3779B9) & low, (k1 + 0xBB67AE85) & low
    return torch.stack(c, 1).reshape(-1)[:count]


def f32(value):
    return struct.unpack("f", struct.pack("f", value))[0]


def signed(word, bits):
    return torch.where(word >= 1 << (bits - 1), word - (1 << bits), word)


def deviation(name, columns):
    gain = 1.7 if ".down_proj." in name else 2 if ".o_proj." in name else 1
    return gain / math.sqrt(columns)


def bf16_tensor(seed, name, count, offset, scale, device):
    word = words(seed, name, (count + 1) // 2, device)
    halves = torch.stack([signed(word & 0xFFFF, 16), signed(word >> 16, 16)], 1).reshape(-1)[:count]
    return (f32(offset) + halves.to(F32) * f32(scale)).to(BF16)


class Weights:
    def __init__(self, seed, layer, device):
        self.seed, self.prefix, self.device = seed, f"model.layers.{layer}.", device

    def norm(self, name, size):
        return bf16_tensor(self.seed, self.prefix + name + ".weight", size, 1, 2**-18, self.device)

    def gate(self, experts, hidden):
        return self.linear("mlp.gate", experts, hidden)

    def linear(self, module, experts, hidden):
        name = self.prefix + module + ".weight"
        scale = deviation(name, hidden) * math.sqrt(3) / 32768
        return bf16_tensor(self.seed, name, experts * hidden, 0, scale, self.device).reshape(experts, hidden)

    def bias(self, name, count):
        word = words(self.seed, self.prefix + name, count, self.device)
        return signed(word, 32).to(F32) * f32(2**-31 / 20)

    def blocks(self, module, rows, columns):
        """Codes [N, K] in e4m3 and a scale for each 128 x 128."""
        name = self.prefix + module
        word = words(self.seed, name + ".weight", rows * columns // 4, self.device)
        word = (word & 0x9F9F9F9F) + 0x38383838
        codes = torch.stack([word >> s & 0xFF for s in (0, 8, 16, 24)], 1).to(torch.uint8).reshape(rows, columns).view(E4M3)
        down, across = -(-rows // 128), -(-columns // 128)
        base = f32(deviation(name + ".weight_scale_inv", columns) / math.sqrt(45.654296875 * 49 / 48))
        word = signed(words(self.seed, name + ".weight_scale_inv", down * across, self.device), 32)
        return codes, (base + word.to(F32) * f32(base * 2**-33)).reshape(down, across)

    def stacked(self, modules, rows, columns):
        parts = [self.blocks(module, n, columns) for module, n in zip(modules, rows)]
        return torch.cat([p[0].view(torch.uint8) for p in parts]).view(E4M3), torch.cat([p[1] for p in parts])


def dequantized(codes, scales):
    rows, columns = codes.shape
    wide = scales.repeat_interleave(128, 0)[:rows].repeat_interleave(128, 1)[:, :columns]
    return (codes.to(F32) * wide).to(BF16)


def rope_row(position, d, base=10000.0, factor=40.0, original=4096, fast=32, slow=1):
    """cos and sin of one position under YaRN, f32 [Dr]: angles in fp32, functions in double, rounded once."""
    import numpy as np
    one, half = np.float32(1), np.arange(d // 2, dtype=np.float32)
    power = np.power(np.float64(base), (2 * half / np.float32(d)).astype(np.float64)).astype(np.float32)
    corrected = lambda turns: d * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base))
    low, high = max(math.floor(corrected(fast)), 0), min(math.ceil(corrected(slow)), d - 1)
    keep = one - np.clip((half - np.float32(low)) / np.float32(high - low), 0, 1)
    inverse = (one / (np.float32(factor) * power)) * (one - keep) + (one / power) * keep
    angle = (np.float32(position) * inverse).astype(np.float64)
    return torch.from_numpy(np.concatenate([np.cos(angle), np.sin(angle)]).astype(np.float32))


# ---- the kernels: a method for each, in place where upstream's is


class Shipped:
    """What sglang calls on an H100."""

    def __init__(self):
        import deep_gemm, sgl_kernel
        from sgl_kernel import flash_mla
        from sglang.srt.layers.attention.triton_ops import extend_attention
        from sglang.srt.layers.attention.nsa import index_buf_accessor, quant_k_cache, triton_kernel
        from sglang.srt.layers.moe.fused_moe_triton import fused_moe_triton_kernels
        self.act_quant_128, self.store_index, self.quantize_cache = triton_kernel.act_quant, index_buf_accessor.SetKAndS, quant_k_cache
        self.extend_attention = extend_attention.extend_attention_fwd
        self.ops, self.deep_gemm, self.flash_mla, self.triton = torch.ops.sgl_kernel, deep_gemm, flash_mla, fused_moe_triton_kernels
        self.keep = getattr(sgl_kernel, "keep", lambda *tensors: None)

    def fused_add_rmsnorm(self, x, residual, weight, eps):
        x, residual = x.clone(), residual.clone()
        self.keep(x, residual, weight)
        self.ops.fused_add_rmsnorm.default(x, residual, weight, eps, False)
        return x, residual

    def rmsnorm(self, x, weight, eps):
        x = x.contiguous()
        out = torch.empty_like(x)
        self.keep(out, x, weight)
        self.ops.rmsnorm.default(out, x, weight, eps, False)
        return out

    def quantize(self, x, m_major):
        rows, groups = x.shape[0], x.shape[1] // 128
        codes = torch.empty(x.shape, dtype=E4M3, device=x.device)
        scales = torch.empty((groups, (rows + 3) // 4 * 4), dtype=F32, device=x.device).t()[:rows] if m_major else torch.empty((rows, groups), dtype=F32, device=x.device)
        self.keep(x, codes, scales)
        self.ops.sgl_per_token_group_quant_8bit.default(x, codes, scales, 128, 1e-10, -448.0, 448.0, False)
        return codes, scales

    def fp8_gemm_nt(self, codes, scales, weight, weight_scales):
        out = torch.empty((codes.shape[0], weight.shape[0]), dtype=BF16, device=codes.device)
        self.keep(codes, scales, weight, weight_scales, out)
        self.deep_gemm.fp8_gemm_nt((codes, scales), (weight, weight_scales), out)
        return out

    def bmm(self, a, b):
        return torch.bmm(a, b)

    def rope(self, q, k, table, pairs=True):
        rows = torch.arange(q.shape[0], dtype=torch.int64, device=q.device)
        self.keep(q, k, table, rows)
        self.ops.apply_rope_pos_ids_cos_sin_cache.default(q, k, q, k, table, rows, pairs, False, None, None, None, None)
        return q, k

    def layernorm(self, x, weight, bias):
        return torch.nn.functional.layer_norm(x.to(F32), weight.shape, weight, bias, 1e-6).to(x.dtype)

    def hadamard(self, x):
        x = x.contiguous()
        self.keep(x)
        out = self.ops.fast_hadamard_transform.default(x, x.shape[-1] ** -0.5)
        self.keep(out)
        return out

    def act_quant(self, x):
        return self.act_quant_128(x.contiguous(), 128, "ue8m0")

    def set_index(self, buffer, loc, codes, scales):
        pool = type("Pool", (), dict(page_size=64, index_head_dim=128, quant_block_size=128, device=buffer.device))
        self.store_index.execute(pool, buf=buffer, loc=loc, index_k=codes, index_k_scale=scales)
        return buffer

    def linear_f32(self, x, weight):
        return torch.nn.functional.linear(x, weight)

    def paged_logits(self, q, cache, weights, lengths, table):
        sms = torch.cuda.get_device_properties(0).multi_processor_count
        self.keep(q, cache, weights, lengths, table)
        plan = self.deep_gemm.get_paged_mqa_logits_metadata(lengths, 64, sms)
        self.keep(plan)
        logits = self.deep_gemm.fp8_paged_mqa_logits(q, cache, weights, lengths, table, plan, 64 * table.shape[1], False)
        self.keep(logits)
        return logits

    def select(self, logits, lengths, slots, topk):
        starts = torch.arange(len(lengths) + 1, dtype=I32, device=logits.device)
        out = torch.empty((len(lengths), topk), dtype=I32, device=logits.device)
        self.keep(logits, lengths, slots, starts, out)
        self.ops.fast_topk_transform_fused.default(logits, lengths, out, slots, starts, None)
        return out

    def quantize_k(self, rows):
        return self.quantize_cache._quantize_k_cache_fast_wrapped(rows).view(torch.uint8)

    def sparse_fwd(self, q, kv, indices, scale):
        self.keep(q, kv, indices)
        return self.flash_mla.flash_mla_sparse_fwd(q, kv, indices, scale)[0]

    def sparse_decode(self, q, cache, indices, lengths, metadata, splits, scale):
        table = torch.zeros((len(q), 1), dtype=I32, device=q.device)
        self.keep(q, cache, indices, lengths, metadata, splits, table)
        return self.flash_mla.flash_mla_with_kvcache(q, cache.view(E4M3), table, lengths, 512, metadata, splits, scale, False, is_fp8_kvcache=True, indices=indices)[0]

    def flash_mla_decode(self, q, cache, table, lengths, metadata, splits, scale):
        self.keep(q, cache, table, lengths, metadata, splits)
        return self.flash_mla.flash_mla_with_kvcache(q, cache, table, lengths, 512, metadata, splits, scale, True)[0]

    def concat_k(self, k_nope, k_pe):
        if k_nope.shape[1] != 128:
            return torch.cat([k_nope, k_pe.expand(-1, k_nope.shape[1], -1)], 2)
        k = torch.empty((*k_nope.shape[:2], k_nope.shape[2] + k_pe.shape[2]), dtype=k_nope.dtype, device=k_nope.device)
        self.keep(k, k_nope, k_pe)
        self.ops.concat_mla_k.default(k, k_nope, k_pe)
        return k

    def extend(self, q, k, v, starts, scale):
        out = torch.empty((*q.shape[:2], v.shape[2]), dtype=q.dtype, device=q.device)
        none = torch.zeros(len(starts), dtype=I32, device=q.device)
        longest = int((starts[1:] - starts[:-1]).max())
        self.extend_attention(q, k, v, out, k.new_zeros((1, *k.shape[1:])), v.new_zeros((1, *v.shape[1:])), starts, none, none[:0].long(), None, True, None, longest, scale)
        return out

    def router_gemm(self, x, weight):
        if x.shape[0] > 16 or x.shape[1] != 7168:
            return torch.nn.functional.linear(x, weight).to(F32)
        out = torch.empty((x.shape[0], weight.shape[0]), dtype=F32, device=x.device)
        self.keep(out, x, weight)
        self.ops.dsv3_router_gemm.default(out, x, weight)
        return out

    def fused_gate(self, logits, bias, groups, topk_groups, topk, shared, factor):
        self.keep(logits, bias)
        weights, ids = self.ops.moe_fused_gate.default(logits, bias, groups, topk_groups, topk, shared, factor, False)
        return weights, ids

    def silu_and_mul(self, x):
        out = torch.empty((x.shape[0], x.shape[1] // 2), dtype=x.dtype, device=x.device)
        self.keep(out, x)
        self.ops.silu_and_mul.default(out, x)
        return out

    def align(self, ids, experts):
        room = ids.numel() + experts * 63
        zeros = lambda n: torch.zeros(n, dtype=I32, device=ids.device)
        sorted_ids, blocks, padded, sums = zeros((room + 3) // 4 * 4), zeros(-(-room // 64)), zeros(1), zeros(experts + 1)
        self.keep(ids, sorted_ids, blocks, padded, sums)
        self.ops.moe_align_block_size.default(ids, experts, 64, sorted_ids, blocks, padded, sums, True)
        return sorted_ids, blocks, padded

    def fused_moe(self, a, a_scales, b, b_scales, weights, ids, sorted_ids, blocks, padded, last):
        import triton.language as tl
        tokens, topk = ids.shape
        out = torch.empty((tokens, topk, b.shape[1]), dtype=BF16, device=a.device)
        grid = lambda meta: (-(-sorted_ids.shape[0] // meta["BLOCK_SIZE_M"]) * -(-b.shape[1] // meta["BLOCK_SIZE_N"]),)
        self.triton.fused_moe_kernel[grid](
            a, None, b, None, None, out, a_scales, b_scales, weights, sorted_ids, blocks, padded, b.shape[1], b.shape[2], sorted_ids.shape[0],
            ids.numel(), a.stride(0), a.stride(1), b.stride(0), b.stride(2), b.stride(1), 0, 0, out.stride(-2), out.stride(-1),
            a_scales.stride(0), a_scales.stride(1), b_scales.stride(0), b_scales.stride(2), b_scales.stride(1), 128, 128,
            MUL_ROUTED_WEIGHT=last, top_k=1 if last else topk, compute_type=tl.bfloat16, use_fp8_w8a8=True, use_int8_w8a8=False,
            use_int8_w8a16=False, per_channel_quant=False, even_Ks=True, c_sorted=False, filter_expert=True,
            BLOCK_SIZE_M=64, BLOCK_SIZE_N=128, BLOCK_SIZE_K=128, GROUP_SIZE_M=32, num_warps=4, num_stages=3)
        return out

    def sum_reduce(self, rows, factor):
        out = torch.empty((rows.shape[0], rows.shape[2]), dtype=BF16, device=rows.device)
        self.keep(rows, out)
        self.ops.moe_sum_reduce.default(rows, out, factor)
        return out


class Replayed:
    """The same by hopper mode, on the CPU."""

    def __init__(self):
        import dodona, ml_dtypes, numpy
        self.dodona, self.np = dodona, numpy
        self.types = {BF16: ml_dtypes.bfloat16, E4M3: ml_dtypes.float8_e4m3fn}

    def to(self, value):
        if not isinstance(value, torch.Tensor):
            return value
        value = value.detach().cpu()
        if value.dtype not in self.types:
            return value.numpy()
        raw = value.view(torch.uint8 if value.dtype == E4M3 else torch.int16).numpy()
        return raw.view(self.types[value.dtype])

    def back(self, array):
        kinds = {numpy_type: kind for kind, numpy_type in self.types.items()}
        kind = kinds.get(array.dtype.type)
        array = self.np.ascontiguousarray(array)
        if kind is None:
            return torch.from_numpy(array)
        return torch.from_numpy(array.view(self.np.uint8 if kind == E4M3 else self.np.int16)).view(kind)

    def run(self, op, **args):
        out = self.dodona.Case.of(op, **{name: self.to(value) for name, value in args.items()}).run("hopper")
        return {name: self.back(value) for name, value in out.items()}

    def fused_add_rmsnorm(self, x, residual, weight, eps):
        out = self.run("fused_add_rmsnorm", input=x, residual=residual, weight=weight, eps=eps)
        return out["input"], out["residual"]

    def rmsnorm(self, x, weight, eps):
        return self.run("rmsnorm", input=x.contiguous(), weight=weight, eps=eps)["output"]

    def quantize(self, x, m_major):
        out = self.run("sgl_per_token_group_quant_fp8", input=x)
        return out["output_q"], out["output_s"].t().contiguous().t() if m_major else out["output_s"]

    def fp8_gemm_nt(self, codes, scales, weight, weight_scales):
        return self.run("fp8_gemm_nt", a=codes, sfa=scales, b=weight, sfb=weight_scales)["d"]

    def bmm(self, a, b):
        return self.run("bmm", mat1=a, mat2=b)["out"]

    def rope(self, q, k, table, pairs=True):
        rows = torch.arange(q.shape[0], dtype=torch.int64)
        out = self.run("apply_rope_with_cos_sin_cache_inplace", positions=rows, query=q.contiguous(), key=k.contiguous(), cos_sin_cache=table, head_size=q.shape[2], is_neox=not pairs)
        q.copy_(out["query"].to(q.device)), k.copy_(out["key"].to(k.device))
        return q, k

    def flash_mla_decode(self, q, cache, table, lengths, metadata, splits, scale):
        return self.run("flash_mla_with_kvcache", q=q, k_cache=cache, block_table=table, cache_seqlens=lengths, tile_scheduler_metadata=metadata, num_splits=splits, softmax_scale=scale, causal=True)["out"]

    def concat_k(self, k_nope, k_pe):
        if k_nope.shape[1] != 128:
            return torch.cat([k_nope, k_pe.expand(-1, k_nope.shape[1], -1)], 2)
        return self.run("concat_mla_k", k_nope=k_nope.contiguous(), k_rope=k_pe.contiguous())["k"]

    def extend(self, q, k, v, starts, scale):
        none = torch.zeros(len(starts), dtype=I32)
        return self.run("extend_attention_fwd", q_extend=q, k_extend=k, v_extend=v.contiguous(), k_buffer=k.new_zeros((1, *k.shape[1:])), v_buffer=v.new_zeros((1, *v.shape[1:])), qo_indptr=starts, kv_indptr=none, kv_indices=none[:0].long(), sm_scale=scale)["o_extend"]

    def router_gemm(self, x, weight):
        if x.shape[0] > 16 or x.shape[1] != 7168:
            return self.run("linear", input=x, weight=weight)["output"].to(F32)
        return self.run("dsv3_router_gemm", hidden_states=x, router_weights=weight, out_dtype="f32")["output"]

    def fused_gate(self, logits, bias, groups, topk_groups, topk, shared, factor):
        out = self.run("moe_fused_gate", input_tensor=logits, bias=bias, num_expert_group=groups, topk_group=topk_groups, topk=topk, num_fused_shared_experts=shared, routed_scaling_factor=factor)
        return out["topk_weights"], out["topk_ids"]

    def silu_and_mul(self, x):
        return self.run("silu_and_mul", input=x)["out"]

    def align(self, ids, experts):
        room = ids.numel() + experts * 63
        zeros = lambda n: torch.zeros(n, dtype=I32)
        out = self.run("moe_align_block_size", topk_ids=ids, sorted_token_ids=zeros((room + 3) // 4 * 4), experts_ids=zeros(-(-room // 64)), cumsum_buffer=zeros(experts + 1), num_experts=experts, block_size=64, pad_sorted_token_ids=True)
        return out["sorted_token_ids"], out["experts_ids"], out["num_tokens_post_pad"]

    def fused_moe(self, a, a_scales, b, b_scales, weights, ids, sorted_ids, blocks, padded, last):
        return self.run("fused_moe_kernel", A=a, B=b, A_scale=a_scales, B_scale=b_scales, topk_weights=weights, topk_ids=ids, sorted_token_ids=sorted_ids, expert_ids=blocks, num_tokens_post_padded=padded, mul_routed_weight=last, top_k=1 if last else ids.shape[1], BLOCK_SIZE_M=64, BLOCK_SIZE_N=128, BLOCK_SIZE_K=128, use_fp8_w8a8=True, block_shape_0=128, block_shape_1=128)["C"]

    def sum_reduce(self, rows, factor):
        return self.run("moe_sum_reduce", input_tensor=rows, routed_scaling_factor=factor)["output_tensor"]

    def layernorm(self, x, weight, bias):
        return self.run("layernorm", input=x, gemma=weight, beta=bias, eps=1e-6)["out"]

    def hadamard(self, x):
        return self.run("hadamard_transform", x=x.contiguous(), scale=x.shape[-1] ** -0.5)["out"]

    def act_quant(self, x):
        out = self.run("act_quant", x=x.contiguous(), scale_fmt="ue8m0")
        return out["y"], out["s"]

    def set_index(self, buffer, loc, codes, scales):
        return self.run("set_index_k_scale_buffer", buf=buffer, loc=loc, index_k=codes, index_k_scale=scales)["buf"]

    def linear_f32(self, x, weight):
        return self.run("linear", input=x, weight=weight, out_dtype="f32")["output"]

    def paged_logits(self, q, cache, weights, lengths, table):
        return self.run("fp8_paged_mqa_logits", q=q, fused_kv_cache=cache, weights=weights, context_lens=lengths, block_table=table, max_context_len=64 * table.shape[1])["logits"]

    def select(self, logits, lengths, slots, topk):
        starts = torch.zeros(len(lengths) + 1, dtype=I32)
        return self.run("fast_topk_transform_fused", score=logits, lengths=lengths, page_table_size_1=slots, cu_seqlens_q=starts)["dst_page_table"]

    def quantize_k(self, rows):
        return self.run("quantize_k_cache", cache_k=rows)["quant_cache"]

    def sparse_fwd(self, q, kv, indices, scale):
        return self.run("flash_mla_sparse_fwd", q=q, kv=kv, indices=indices, sm_scale=scale)["out"]

    def sparse_decode(self, q, cache, indices, lengths, metadata, splits, scale):
        return self.run("flash_mla_sparse_decode", q=q, k_cache=cache, indices=indices, tile_scheduler_metadata=metadata, num_splits=splits, softmax_scale=scale)["out"]

    def metadata(self, lengths, heads, topk=None):
        sparse = {} if topk is None else dict(num_heads_q=heads, topk=topk, is_fp8_kvcache=True)
        out = self.run("get_mla_metadata", cache_seqlens=lengths, num_q_tokens_per_head_k=heads, num_heads_k=1, **sparse)
        return out["tile_scheduler_metadata"], out["num_splits"]


def bits(tensor):
    return tensor.detach().cpu().contiguous().view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()])


class Checked:
    """Runs `first` and goes on with what it gives; `second` on the same inputs, to count what differs."""

    def __init__(self, first, second):
        self.first, self.second, self.total = first, second, 0

    def __getattr__(self, name):
        def call(*args):
            copies = [a.clone() if isinstance(a, torch.Tensor) and name in ("rope", "set_index") else a for a in args]
            given = getattr(self.first, name)(*args)
            begin = time.time()
            try:
                mine = getattr(self.second, name)(*copies)
            except Exception as error:
                print(f"  {name}: no hopper mode: {str(error)[:300]}", flush=True)
                return given
            pairs = list(zip(given, mine)) if isinstance(given, tuple) else [(given, mine)]
            if name == "align":  # the order within an expert is left to atomics
                pairs = pairs[2:]
            if name == "paged_logits":  # what lies behind a request's tokens is not said
                behind = torch.arange(given.shape[1])[None] >= args[3].cpu()[:, None]
                pairs = [tuple(p.cpu().masked_fill(behind, 0) for p in pairs[0])]
            if name == "select":  # nor is the order of those that it chooses
                pairs = [tuple(p.cpu().sort(1)[0] for p in pairs[0])]
            differ = [int((bits(a) != bits(b)).sum()) if a.shape == b.shape else -1 for a, b in pairs]
            self.total += sum(abs(d) for d in differ)
            print(f"  {name:20} {' '.join(str(tuple(a.shape)) for a, _ in pairs):50} {differ} differ ({time.time() - begin:.1f} s)", flush=True)
            return given
        return call


# ---- what is written


NAMES = {BF16: "bf16", F32: "f32", I32: "i32", E4M3: "f8_e4m3", torch.int64: "i64", torch.uint8: "u8"}


def digest(tensor):
    """SHA-256 of `bf16 [4, 7168]`, a line feed, and the row-major bytes."""
    head = f"{NAMES[tensor.dtype]} [{', '.join(map(str, tensor.shape))}]\n".encode()
    return hashlib.sha256(head + bits(tensor).numpy().tobytes()).hexdigest()


class Dump:
    def __init__(self, setting):
        self.setting, self.steps, self.tensors = setting, [], {}

    def __call__(self, op, *outputs, note=""):
        """Outputs are (label, tensor)."""
        records = []
        for i, (label, tensor) in enumerate(outputs):
            values = tensor.detach().cpu().to(torch.float64)
            finite = values[torch.isfinite(values)]
            records.append(dict(label=label, dtype=NAMES[tensor.dtype], shape=list(tensor.shape), digest=digest(tensor), min=float(finite.min()),
                                max=float(finite.max()), rms=float(finite.square().mean().sqrt()), not_finite=int(values.numel() - finite.numel())))
            name = (op if not note else f"{op} ({note})") + ("" if i == 0 else "." + label)
            self.tensors[name] = tensor.detach().cpu().contiguous().clone()
        self.steps.append(dict(op=op, note=note, shapes="", outputs=records))

    def write(self, path, read, tensors):
        from safetensors.torch import save_file
        kept = {name: tensor.detach().cpu().contiguous() for name, tensor in read.items()} | (self.tensors if tensors else {})
        trail = json.dumps({"trail": 1, "setting": self.setting, "steps": self.steps})
        save_file(kept or {"input.none": torch.zeros(0)}, path, metadata={"trail": trail})


# ---- the layer


class Layer:
    """One layer: its sizes, kernels, weights, and the batch of requests of `lengths` tokens, the last `new` of each new."""

    def __init__(self, sizes, kernels, metadata, weights, lengths, new, history, index, dump, device):
        self.s, self.kernels, self.metadata, self.weights, self.dump, self.device = sizes, kernels, metadata, weights, dump, device
        self.lengths, self.new, self.history, self.index = lengths, new, history, index
        self.scale = (sizes["Dn"] + sizes["Dr"]) ** -0.5 * (0.1 * math.log(40) + 1) ** 2

    def linear(self, x, weight):
        return self.kernels.fp8_gemm_nt(*self.kernels.quantize(x.contiguous(), True), *weight)

    def latents(self, x):
        s, w, dump, a = self.s, self.weights, self.dump, "self_attn."
        qkv = self.linear(x, w.stacked([a + "q_a_proj", a + "kv_a_proj_with_mqa"], [s["Lq"], s["Lkv"] + s["Dr"]], s["H"]))
        dump("self.fused_qkv_a_proj_with_mqa()", ("output", qkv))
        q_a = self.kernels.rmsnorm(qkv[:, : s["Lq"]], w.norm(a + "q_a_layernorm", s["Lq"]), s["eps"])
        dump("self.q_a_layernorm()", ("output", q_a))
        q = self.linear(q_a, w.blocks(a + "q_b_proj", s["Nh"] * (s["Dn"] + s["Dr"]), s["Lq"]))
        dump("self.q_b_proj()", ("output", q))
        kv_a = self.kernels.rmsnorm(qkv[:, s["Lq"] : s["Lq"] + s["Lkv"]], w.norm(a + "kv_a_layernorm", s["Lkv"]), s["eps"])
        dump("self.kv_a_layernorm()", ("output", kv_a))
        self.q_lora = q_a
        return q.reshape(len(x), s["Nh"], -1), kv_a, qkv[:, s["Lq"] + s["Lkv"] :].unsqueeze(1)

    def rope_rows(self):
        positions = [n - k + i for n, k in zip(self.lengths, self.new) for i in range(k)]
        return torch.stack([rope_row(p, self.s["Dr"]) for p in positions]).to(self.device)

    def rotated(self, q_pe, k_pe):
        q_pe, k_pe = self.kernels.rope(q_pe, k_pe, self.rope_rows())
        self.dump("self.rotary_emb()", ("q_pe", q_pe), ("k_pe", k_pe))
        return q_pe, k_pe

    def kv_b(self):
        s = self.s
        return self.weights.blocks("self_attn.kv_b_proj", s["Nh"] * (s["Dn"] + s["Dv"]), s["Lkv"])

    def prefill(self, x):
        s, dump = self.s, self.dump
        q, kv_a, k_pe = self.latents(x)
        _, k_pe = self.rotated(q[:, :, s["Dn"] :], k_pe)
        dump("set_mla_kv_buffer()", ("k_nope", kv_a.unsqueeze(1)), ("k_pe", k_pe))
        kv = self.linear(kv_a, self.kv_b())
        dump("self.kv_b_proj()", ("output", kv))
        kv = kv.reshape(len(x), s["Nh"], -1)
        k = self.kernels.concat_k(kv[:, :, : s["Dn"]], k_pe)
        dump("self._concat_and_cast_mha_k()", ("output", k))
        starts = torch.tensor([0] + self.new).cumsum(0).to(I32).to(self.device)
        o = self.kernels.extend(q, k, kv[:, :, s["Dn"] :], starts, self.scale)
        dump("self.attn_mha()", ("output", o))
        return o

    def decode(self, x):
        s, dump, T, device = self.s, self.dump, len(x), self.device
        q, kv_a, k_pe = self.latents(x)
        kv_b = dequantized(*self.kv_b()).reshape(s["Nh"], s["Dn"] + s["Dv"], s["Lkv"])
        w_kc = kv_b[:, : s["Dn"]].transpose(1, 2).contiguous().transpose(1, 2)
        w_vc = kv_b[:, s["Dn"] :].contiguous().transpose(1, 2)
        q_nope = self.kernels.bmm(q[:, :, : s["Dn"]].transpose(0, 1), w_kc).transpose(0, 1)
        dump("bmm_fp8()", ("q_nope_out", q_nope), note="q_nope * w_kc")
        q_pe, k_pe = self.rotated(q[:, :, s["Dn"] :], k_pe)
        cache, table, loc = self.cache()
        rows = torch.cat([kv_a.unsqueeze(1), k_pe], 2)
        if cache.shape[2] == 656:
            rows = self.kernels.quantize_k(rows.unsqueeze(1)).reshape(T, 1, -1)
        cache[loc] = rows
        dump("set_mla_kv_buffer()", ("k_nope", kv_a.unsqueeze(1)), ("k_pe", k_pe))
        counts = torch.tensor(self.lengths, dtype=I32)
        query = torch.cat([q_nope, q_pe], 2)
        if "topk" in s:
            o = self.sparse(query, cache, self.indexed(x, table.to(device), loc, counts.to(device)), counts)
        else:
            metadata, splits = (t.to(device) for t in self.metadata(counts, s["Nh"]))
            pages = cache.reshape(-1, 64, 1, s["Lkv"] + s["Dr"])
            o = self.kernels.flash_mla_decode(query.unsqueeze(1), pages, table.to(device), counts.to(device), metadata, splits, self.scale)
        o = o.reshape(T, s["Nh"], s["Lkv"])
        dump("self.attn_mqa()", ("output", o))
        o = self.kernels.bmm(o.transpose(0, 1), w_vc).transpose(0, 1)
        dump("bmm_fp8()", ("attn_bmm_output", o), note="attn_output * w_vc")
        return o

    def sparse(self, query, cache, chosen, counts):
        """Over the chosen slots alone."""
        s, device, chosen = self.s, self.device, chosen.unsqueeze(1)
        if cache.shape[2] != 656:
            return self.kernels.sparse_fwd(query, cache, chosen, self.scale)
        metadata, splits = (t.to(device) for t in self.metadata(counts, s["Nh"], s["topk"]))
        pages = cache.reshape(-1, 64, 1, cache.shape[2])
        return self.kernels.sparse_decode(query.unsqueeze(1), pages, chosen, counts.to(device), metadata, splits, self.scale)

    def indexed(self, x, table, loc, counts):
        """The indexer: slots of the tokens that each new one attends to."""
        s, w, kernels, T, a = self.s, self.weights, self.kernels, len(x), "self_attn.indexer."
        heads, width, half = s["heads"], s["width"], s["Dr"]
        q = self.linear(self.q_lora, w.blocks(a + "wq_b", heads * width, s["Lq"])).reshape(T, heads, width)
        k = self.linear(x, w.blocks(a + "wk", width, s["H"]))
        k = kernels.layernorm(k, w.norm(a + "k_norm", width).to(F32), w.bias(a + "k_norm.bias", width)).unsqueeze(1)
        q[:, :, :half], k[:, :, :half] = kernels.rope(q[:, :, :half].contiguous(), k[:, :, :half].contiguous(), self.rope_rows(), False)
        q, k = kernels.hadamard(q), kernels.hadamard(k)
        (q, q_scales), (k, k_scales) = kernels.act_quant(q), kernels.act_quant(k[:, 0])
        buffer = kernels.set_index(self.index_pages(table), torch.tensor(loc, device=self.device), k, k_scales)
        weights = kernels.linear_f32(x.to(F32), w.linear(a + "weights_proj", heads, s["H"]).to(F32))
        weights = ((weights * heads**-0.5).unsqueeze(2) * q_scales * width**-0.5).squeeze(2)
        logits = kernels.paged_logits(q.unsqueeze(1), buffer.reshape(-1, 64, 1, width + 4), weights.contiguous(), counts, table)
        slots = (table.unsqueeze(2) * 64 + torch.arange(64, dtype=I32, device=self.device)).reshape(T, -1).contiguous()
        chosen = kernels.select(logits, counts, slots, s["topk"])
        if max(self.lengths) > s["topk"]:  # in an order that the kernel leaves to atomics, and attention's sums follow it
            chosen = torch.where(counts.unsqueeze(1) > s["topk"], chosen.sort(1)[0], chosen)
        self.dump("self.indexer()", ("output", chosen))
        return chosen

    def index_pages(self, table):
        """Pages of 64 keys: their codes, then their scales."""
        buffer = torch.zeros((2 + int(table.max()), 64 * (self.s["width"] + 4)), dtype=torch.uint8, device=self.device)
        codes, scales = buffer[:, : 64 * self.s["width"]].reshape(-1, 64, self.s["width"]), buffer[:, 64 * self.s["width"] :].reshape(-1, 64, 4)
        for b, n in enumerate(self.lengths):
            at = torch.arange(n - 1, device=self.device)
            page = table[b].long()[at // 64]
            codes[page, at % 64], scales[page, at % 64] = self.index[b, : n - 1, :-4], self.index[b, : n - 1, -4:]
        return torch.cat([codes.reshape(len(buffer), -1), scales.reshape(len(buffer), -1)], 1)

    def cache(self):
        """Pages of 128 in turn, the first of them nobody's; the table counts pages of 64. And the new tokens' slots."""
        pages = [-(-n // 128) for n in self.lengths]
        scaled = self.history.shape[2] == 656
        history = self.history.view(torch.uint8) if scaled else self.history
        cache = torch.zeros((1 + sum(pages)) * 128, 1, history.shape[2], dtype=history.dtype, device=self.device)
        table = torch.full((len(pages), 2 * max(pages)), -1, dtype=I32)
        first, loc = 1, []
        for b, n in enumerate(self.lengths):
            cache[first * 128 : first * 128 + n - 1, 0] = history[b, : n - 1]
            table[b, : 2 * pages[b]] = torch.arange(2 * first, 2 * (first + pages[b]))
            loc.append(first * 128 + n - 1)
            first += pages[b]
        return cache, table, loc

    def run(self, hidden, residual, fused_shared):
        s, dump, kernels, weights = self.s, self.dump, self.kernels, self.weights
        x, residual = kernels.fused_add_rmsnorm(hidden, residual, weights.norm("input_layernorm", s["H"]), s["eps"])
        dump("self.input_layernorm()", ("output", x), ("residual", residual))
        o = self.decode(x) if max(self.new) == 1 else self.prefill(x)
        o = self.linear(o.reshape(len(x), -1), weights.blocks("self_attn.o_proj", s["H"], s["Nh"] * s["Dv"]))
        dump("self.o_proj()", ("output", o))
        dump("self.self_attn()", ("output", o))
        x, residual = kernels.fused_add_rmsnorm(o, residual, weights.norm("post_attention_layernorm", s["H"]), s["eps"])
        dump("self.post_attention_layernorm()", ("output", x), ("residual", residual))
        out = self.moe(x, fused_shared)
        dump("self.mlp()", ("output", out))
        dump("layer()", ("hidden", out), ("residual", residual))
        return out, residual

    def mlp_weights(self, module):
        s, w = self.s, self.weights
        return w.stacked([module + ".gate_proj", module + ".up_proj"], [s["I"]] * 2, s["H"]), w.blocks(module + ".down_proj", s["H"], s["I"])

    def shared_experts(self, x):
        gate_up, down = self.mlp_weights("mlp.shared_experts")
        both = self.linear(x, gate_up)
        self.dump("self.gate_up_proj()", ("output", both))
        activated = self.kernels.silu_and_mul(both)
        self.dump("self.act_fn()", ("output", activated))
        out = self.linear(activated, down)
        self.dump("self.down_proj()", ("output", out))
        self.dump("self.shared_experts()", ("output", out))
        return out

    def moe(self, x, fused_shared):
        s, kernels, device = self.s, self.kernels, self.device
        logits = kernels.router_gemm(x, self.weights.gate(s["E"], s["H"]))
        self.dump("self.gate()", ("output", logits))
        topk_weights, ids = kernels.fused_gate(logits, self.weights.bias("mlp.gate.e_score_correction_bias", s["E"]), s["G"], s["TG"], s["K"] + fused_shared, int(fused_shared), s["rsf"])
        self.dump("self.topk()", ("topk_weights", topk_weights), ("topk_ids", ids))
        shared = None if fused_shared else self.shared_experts(x)
        # Experts that nobody chose are left out of the stacks: no block names them.
        chosen = sorted(set(ids.flatten().tolist()))
        place = torch.full((s["E"] + 1,), -1, dtype=I32)
        place[chosen] = torch.arange(len(chosen), dtype=I32)
        local = place.to(device)[ids.to(device).long()].contiguous()
        stacks = [self.mlp_weights("mlp.shared_experts" if e == s["E"] else f"mlp.experts.{e}") for e in chosen]
        codes = lambda i: torch.stack([w[i][0].view(torch.uint8) for w in stacks]).view(E4M3)
        w13, w2 = (codes(0), torch.stack([w[0][1] for w in stacks])), (codes(1), torch.stack([w[1][1] for w in stacks]))
        del stacks
        blocks = [t.to(device) for t in kernels.align(local, len(chosen) + 1)]
        both = kernels.fused_moe(*kernels.quantize(x, False), *w13, topk_weights, local, *blocks, False)
        activated = kernels.silu_and_mul(both.reshape(-1, 2 * s["I"]))
        rows = kernels.fused_moe(*kernels.quantize(activated, False), *w2, topk_weights, local, *blocks, True)
        routed = kernels.sum_reduce(rows, s["rsf"])
        self.dump("self.experts()", ("output", routed))
        return routed if shared is None else routed + shared


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", help="trail with its inputs: input.hidden, input.residual and input.kv_cache")
    parser.add_argument("--out", required=True, help="trail, a safetensors file")
    parser.add_argument("--tensors", action="store_true")
    parser.add_argument("--preset", default="r1", choices=SHAPES)
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--kernels", default="shipped", choices=["shipped", "dodona"])
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    from safetensors import safe_open
    with safe_open(options.step, "pt") as file:
        inputs = {name[6:]: file.get_tensor(name) for name in file.keys() if name.startswith("input.")}
        setting = json.loads(file.metadata()["trail"])["setting"]
    new = setting.get("new_tokens", [1] * len(setting["kv_len"]))
    device = "cuda" if options.kernels == "shipped" else "cpu"
    replayed = Replayed()
    kernels = Shipped() if options.kernels == "shipped" else replayed
    if options.check:
        kernels = Checked(kernels, replayed)
    hidden, residual, history = (inputs[name].to(device) for name in ("hidden", "residual", "kv_cache"))
    index = inputs["index_k"].to(device) if "index_k" in inputs else None
    for i in range(options.layers):
        begin, dump, number = time.time(), Dump(dict(setting, layer=setting["layer"] + i)), setting["layer"] + i
        read = {"input.hidden": hidden, "input.residual": residual} if i > 0 else {}
        layer = Layer(SHAPES[options.preset], kernels, replayed.metadata, Weights(setting["seed"], number, device), setting["kv_len"], new, history, index, dump, device)
        hidden, residual = layer.run(hidden, residual, setting["fused_shared_expert"])
        path = options.out if i == 0 else options.out.replace(".safetensors", f".{i}.safetensors")
        dump.write(path, read, options.tensors)
        print(f"{path}: {len(dump.steps)} model ops of layer {number} in {time.time() - begin:.1f} s" + (f"; {kernels.total} elements differ from hopper mode" if options.check else ""), flush=True)


if __name__ == "__main__":
    main()
