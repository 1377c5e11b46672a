"""Honest kernels in NumPy's float32, written from the ops' formulas alone: what the bugs of this folder are mistakes in.

Each takes the inputs and attributes of a case as one namespace, and returns outputs by name. Nothing of Dodona is used.
"""

from types import SimpleNamespace

import ml_dtypes
import numpy as np

F32 = np.float32
BF16 = ml_dtypes.bfloat16
E4M3 = ml_dtypes.float8_e4m3fn
E8M0 = ml_dtypes.float8_e8m0fnu


def f32(x):
    return np.asarray(x).astype(F32)


def through(dtype, x):
    """Rounded to a type and back."""
    return f32(f32(x).astype(dtype))


def truncated(dtype, x):
    """Cut toward zero instead of rounded; for types whose bits are the upper ones of float32's."""
    drop = 32 - 8 * np.dtype(dtype).itemsize
    return ((f32(x).view(np.uint32) >> drop) << drop).view(F32).astype(dtype)


def packed(x):
    """As a kernel reads a slice of wider rows that it takes for packed ones: from its first element on."""
    return np.lib.stride_tricks.as_strided(x, x.shape, np.empty(x.shape, x.dtype).strides).copy()


def with_lines(namespace, **changed):
    return SimpleNamespace(**{**vars(namespace), **changed})


# ---- norms and activations


def rmsnorm(x, eps, inverse=lambda r: r, mean_square=lambda x: (x * x).mean(-1, keepdims=True, dtype=F32)):
    a = f32(x.input)
    scale = inverse(F32(1) / np.sqrt(mean_square(a) + F32(eps)))
    return {"output": (a * scale * f32(x.weight)).astype(x.input.dtype)}


def fused_add_rmsnorm(x, eps=1e-6, before=lambda s: s, stored=None):
    total = f32(x.input) + f32(x.residual)
    kept = before(total)
    scale = F32(1) / np.sqrt((kept * kept).mean(-1, keepdims=True, dtype=F32) + F32(eps))
    out = (kept * scale * f32(x.weight)).astype(x.input.dtype)
    return {"input": out, "residual": (stored or (lambda s: s.astype(x.input.dtype)))(total)}


def gelu(g):
    from math import erf, sqrt

    return g * F32(0.5) * (F32(1) + f32(np.vectorize(lambda v: erf(v / sqrt(2)))(g)))


def gelu_tanh(g):
    return F32(0.5) * g * (F32(1) + np.tanh(F32(0.7978845608028654) * (g + F32(0.044715) * g * g * g)))


def act_and_mul(x, activation):
    half = x.input.shape[-1] // 2
    gate, up = f32(x.input[..., :half]), f32(x.input[..., half:])
    return {"out": (activation(gate) * up).astype(x.input.dtype)}


def rotary_embedding(x, neox):
    half = x.cos_sin_cache.shape[-1] // 2
    table = f32(x.cos_sin_cache)[x.positions]
    cos, sin = table[:, None, :half], table[:, None, half:]

    def rotate(t):
        heads = f32(t).reshape(len(t), -1, x.head_size).copy()
        rotated = heads[..., : 2 * half]
        a, b = (rotated[..., :half].copy(), rotated[..., half:].copy()) if neox else (rotated[..., 0::2].copy(), rotated[..., 1::2].copy())
        first, second = a * cos - b * sin, b * cos + a * sin
        if neox:
            rotated[..., :half], rotated[..., half:] = first, second
        else:
            rotated[..., 0::2], rotated[..., 1::2] = first, second
        return heads.reshape(t.shape).astype(t.dtype)

    return {"query": rotate(x.query), "key": rotate(x.key)}


# ---- gates


def largest(scores, count):
    """Ids of the largest, the lower id first among equals."""
    return np.argsort(-scores, axis=-1, kind="stable")[..., :count]


def sigmoid(x):
    return F32(1) / (F32(1) + np.exp(-f32(x)))


def grouped_gate(logits, bias, groups, chosen_groups, topk, group_score=None, masked=-np.inf, weights="unbiased", scale=None):
    scores = sigmoid(logits)
    biased = scores + f32(bias)
    rows = len(scores)
    by_group = biased.reshape(rows, groups, -1)
    score = (group_score or (lambda g: np.sort(g, axis=-1)[..., -2:].sum(-1, dtype=F32)))(by_group)
    keep = np.zeros((rows, groups), bool)
    np.put_along_axis(keep, largest(score, chosen_groups), True, axis=-1)
    candidates = np.where(keep[..., None], by_group, F32(masked)).reshape(rows, -1)
    ids = largest(candidates, topk)
    taken = np.take_along_axis(scores if weights == "unbiased" else biased, ids, axis=-1)
    taken = taken / taken.sum(-1, keepdims=True, dtype=F32)
    return {"topk_weights": taken.astype(F32) * F32(1 if scale is None else scale), "topk_ids": ids.astype(np.int32)}


def moe_align_block_size(x, counted=lambda ids, experts: ids):
    """Slot 0 holds the ids of no expert of this rank (-1), slot e + 1 those of expert e."""
    flat = x.topk_ids.reshape(-1).astype(np.int64) + 1
    size, pad = x.block_size, x.topk_ids.size
    sorted_ids = np.full(len(x.sorted_token_ids), pad, np.int32)
    blocks, cumsum, at = x.experts_ids.copy(), x.cumsum_buffer.copy(), 0
    small = x.topk_ids.size < 1024 and x.num_experts <= 64
    if not small:
        cumsum[0] = 0
    for slot in range(x.num_experts):
        members = np.flatnonzero(counted(flat, x.num_experts) == slot)
        rounded = -(-len(members) // size) * size
        sorted_ids[at : at + len(members)] = members
        blocks[at // size : (at + rounded) // size] = slot - 1
        at += rounded
        if not small:
            cumsum[slot + 1] = at
    return {"sorted_token_ids": sorted_ids, "experts_ids": blocks, "num_tokens_post_pad": np.array([at], np.int32), "cumsum_buffer": cumsum}


# ---- products


def by_blocks(a, scales_a, b, scales_b, block=128):
    """a [M, K], b [N, K], scales_a [M, K/block], scales_b [N/block, K/block]: partial sums scaled block by block."""
    total = np.zeros((a.shape[0], b.shape[0]), F32)
    for k in range(0, a.shape[1], block):
        part = f32(a[:, k : k + block]) @ f32(b[:, k : k + block]).T
        rows, columns = f32(scales_a)[:, k // block], np.repeat(f32(scales_b)[:, k // block], block)[: b.shape[0]]
        total += part * rows[:, None] * columns[None, :]
    return total


def fp8_blockwise_scaled_mm(x, **changed):
    x = with_lines(x, **changed)
    return {"out": by_blocks(x.mat_a, x.scales_a, x.mat_b.T, x.scales_b.T).astype(BF16)}


def fp8_gemm_nt(x, **changed):
    x = with_lines(x, **changed)
    return {"d": by_blocks(x.a, x.sfa, x.b, x.sfb).astype(BF16)}


def scaled_mm(x, bias=True, **changed):
    x = with_lines(x, **changed)
    sums = f32(x.mat_a) @ f32(x.mat_b) if x.mat_a.dtype != np.int8 else f32(x.mat_a.astype(np.int64) @ x.mat_b.astype(np.int64))
    out = sums * f32(x.scales_a).reshape(-1, 1) * f32(x.scales_b).reshape(1, -1)
    if bias and hasattr(x, "bias"):
        out = out + f32(x.bias)
    return {"out": out.astype(BF16)}


FP4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], F32)


def fp4_values(packed):
    """Two codes a byte, the low one first."""
    return FP4[np.stack([packed & 15, packed >> 4], -1)].reshape(*packed.shape[:-1], -1)


def fp4_codes(values):
    """To nearest, ties to even, saturating."""
    magnitude = np.minimum(np.abs(f32(values)), F32(6))
    code = np.searchsorted(np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5], F32), magnitude, side="left")
    for tie, even in ((0.75, 2), (1.75, 4), (3.5, 6)):
        code = np.where(magnitude == F32(tie), even, code)
    code = (code | np.where(np.signbit(values), 8, 0)).astype(np.uint8)
    return code[..., 0::2] | code[..., 1::2] << 4


def tile_place(row, column, columns):
    """Where the scale of a row and a group lies among tiles of 128 x 4, `columns` wide."""
    return ((row // 128) * (columns // 4) + column // 4) * 512 + (row % 32) * 16 + row % 128 // 32 * 4 + column % 4


def in_tiles(scales, rows, columns, dtype, place=tile_place):
    """Scales [M, groups] as tiles of 128 x 4, padded with zeros."""
    flat = np.zeros(rows * columns, dtype)
    for row in range(scales.shape[0]):
        for group in range(scales.shape[1]):
            at = place(row, group, columns)
            if at < len(flat):
                flat[at] = scales[row, group]
    return flat.reshape(rows, columns)


def out_of_tiles(scales, rows, groups, place=tile_place):
    flat = scales.reshape(-1)
    return np.array([[flat[place(r, g, scales.shape[1])] for g in range(groups)] for r in range(rows)])


def cutlass_scaled_fp4_mm(x, alpha=None, place=tile_place, dtype=BF16):
    a, b = fp4_values(x.a), fp4_values(x.b)
    groups = a.shape[1] // 16
    sa, sb = (np.repeat(f32(out_of_tiles(s, len(t), groups, place)), 16, axis=1) for s, t in ((x.block_scale_a, a), (x.block_scale_b, b)))
    return {"out": (F32(x.alpha[0] if alpha is None else alpha) * ((a * sa) @ (b * sb).T)).astype(dtype)}


# ---- quantizers


def e4m3(x, limit=448):
    return np.clip(f32(x), -F32(limit), F32(limit)).astype(E4M3)


def per_token_group_quant_fp8(x, group=128, least=1e-10, limit=448):
    groups = f32(x.input).reshape(len(x.input), -1, group)
    amax = np.maximum(np.abs(groups).max(-1), F32(least))
    scale = amax / F32(limit)
    with np.errstate(all="ignore"):
        codes = e4m3(groups / scale[..., None], limit)
    return {"output_q": codes.reshape(x.input.shape), "output_s": scale}


def per_token_quant_fp8(x, limit=448):
    scale = np.abs(f32(x.input)).max(-1, keepdims=True) / F32(limit)
    return {"output_q": e4m3(f32(x.input) / scale, limit), "output_s": scale}


def scaled_fp4_quant(x, place=tile_place, scales=lambda s: s):
    groups = f32(x.input).reshape(len(x.input), -1, 16)
    glob = F32((x.input_global_scale if hasattr(x, "input_global_scale") else x.global_scale)[0])
    scale = (glob * (np.abs(groups).max(-1) * F32(1 / 6))).astype(E4M3)
    with np.errstate(all="ignore"):
        factor = np.where(f32(scale) != 0, glob / f32(scale), F32(0))
    rows, columns = -(-len(groups) // 128) * 128, -(-groups.shape[1] // 4) * 4
    return {
        "output": fp4_codes((groups * factor[..., None]).reshape(x.input.shape)),
        "output_scale": in_tiles(scales(scale), rows, columns, E4M3, place),
    }


def mxfp4_quantize(x, exponent, place=tile_place):
    groups = f32(x.a).reshape(len(x.a), -1, 32)
    codes = np.clip(exponent(np.abs(groups).max(-1)), 0, 254).astype(np.uint8)
    scaled = groups * np.exp2(127.0 - codes)[..., None].astype(F32)
    rows, columns = -(-len(groups) // 128) * 128, -(-groups.shape[1] // 4) * 4
    return {"x_q": fp4_codes(scaled.reshape(x.a.shape)), "sf": in_tiles(codes, rows, columns, np.uint8, place).view(E8M0)}


# ---- attention


def softmax_rows(scores, exponential=np.exp):
    most = scores.max(-1, keepdims=True)
    weights = exponential(scores - most)
    return weights, weights.sum(-1, keepdims=True, dtype=F32), most


def cutlass_mla_decode(x, scale=None, exponential=np.exp, length=lambda n, page: n, slot=lambda table, t, page: table[t // page] * page + t % page):
    page = x.kv_c_and_k_pe_cache.shape[1]
    cache = f32(x.kv_c_and_k_pe_cache).reshape(-1, 576)
    out = np.zeros(x.q_nope.shape, x.q_nope.dtype)
    for b, n in enumerate(x.seq_lens):
        keys = cache[[slot(x.page_table[b], t, page) for t in range(length(n, page))]]
        query = np.concatenate([f32(x.q_nope[b]), f32(x.q_pe[b])], -1)
        weights, total, _ = softmax_rows(query @ keys.T * F32(x.sm_scale if scale is None else scale), exponential)
        out[b] = (weights @ keys[:, :512] / total).astype(out.dtype)
    return {"out": out}


def ragged(x, scale=None, most_scale=None, base_2=True, bmm2=1.0, last=lambda i, tq, tk: i + tk - tq + 1):
    """Causal attention over ragged rows; lse in base 2."""
    scale = F32(x.bmm1_scale if scale is None else scale)
    out = np.zeros((*x.query.shape[:2], x.value.shape[-1]), BF16)
    lse = np.full(x.query.shape[:2], -np.inf, F32)
    group = x.query.shape[1] // x.key.shape[1]
    for b in range(len(x.seq_lens)):
        q0, q1, k0, k1 = (int(v) for v in (x.cum_seq_lens_q[b], x.cum_seq_lens_q[b + 1], x.cum_seq_lens_kv[b], x.cum_seq_lens_kv[b + 1]))
        for i in range(q0, q1):
            for h in range(x.query.shape[1]):
                end = k0 + last(i - q0, q1 - q0, k1 - k0)
                if end <= k0:
                    continue
                raw = f32(x.key[k0:end, h // group]) @ f32(x.query[i, h])
                weights, total, most = softmax_rows(raw * scale)
                out[i, h] = (weights @ f32(x.value[k0:end, h // group]) / total * F32(bmm2)).astype(BF16)
                value = raw.max() * F32(scale if most_scale is None else most_scale) + np.log(total[0])
                lse[i, h] = value * F32(1.4426950408889634) if base_2 else value
    return {"out": out, "lse": lse}


def merge_state(x, base_2, empty=False):
    exponential, logarithm = (np.exp2, np.log2) if base_2 else (np.exp, np.log)
    with np.errstate(all="ignore"):
        most = np.maximum(x.s_a, x.s_b)
        a, b = exponential(x.s_a - most), exponential(x.s_b - most)
        total = a + b
        v = (f32(x.v_a) * (a / total)[..., None] + f32(x.v_b) * (b / total)[..., None])
        s = logarithm(total) + most
    if empty:
        none = np.isneginf(most)
        v, s = np.where(none[..., None], F32(0), v), np.where(none, F32(-np.inf), s)
    return {"v_merged": v.astype(x.v_a.dtype), "s_merged": s.astype(F32)}


def prefill(x):
    """FlashInfer's ragged prefill: keys of each request by offsets; lse in base 2."""
    out = np.zeros((*x.q.shape[:2], x.v.shape[-1]), x.q.dtype)
    lse = np.full(x.q.shape[:2], -np.inf, F32)
    group = x.q.shape[1] // x.k.shape[1]
    for b in range(len(x.qo_indptr) - 1):
        rows, keys = slice(x.qo_indptr[b], x.qo_indptr[b + 1]), slice(x.kv_indptr[b], x.kv_indptr[b + 1])
        for h in range(x.q.shape[1]):
            scores = f32(x.q[rows, h]) @ f32(x.k[keys, h // group]).T * F32(x.sm_scale)
            if scores.size == 0:
                continue
            weights, total, most = softmax_rows(scores)
            out[rows, h] = (weights @ f32(x.v[keys, h // group]) / total).astype(out.dtype)
            lse[rows, h] = (most + np.log(total))[:, 0] * F32(1.4426950408889634)
    return {"out": out, "lse": lse}


def scores_of_mla(x):
    """Of cutlass_mla_decode: each request's number, its keys as its pages hold them, and its scores [heads, keys]."""
    page = x.kv_c_and_k_pe_cache.shape[1]
    cache = f32(x.kv_c_and_k_pe_cache).reshape(-1, 576)
    for b, n in enumerate(x.seq_lens):
        keys = cache[[x.page_table[b][t // page] * page + t % page for t in range(n)]]
        yield b, keys, np.concatenate([f32(x.q_nope[b]), f32(x.q_pe[b])], -1) @ keys.T * np.float32(x.sm_scale)


# ---- weights of four bits


def qserve_codes(kernel, columns):
    """Codes of [N, K] out of tiles of 32 x 32, two a byte."""
    rows = len(kernel)
    flat = kernel.view(np.uint8).reshape(-1)
    n, k = np.arange(rows)[:, None], np.arange(columns)[None]
    inside = n % 8 * 64 + k % 16 // 4 * 16 + k % 32 // 16 * 8 + n % 16 // 8 * 4 + k % 4
    byte = flat[(n // 32 * (columns // 32) + k // 32) * 512 + inside]
    return np.where(n % 32 < 16, byte & 15, byte >> 4).astype(np.int32)


def qserve_per_group(x, narrowed):
    rows, columns = len(x.kernel), x.in_feats.shape[1]
    place = np.arange(32)
    channel = np.argsort(place % 4 * 8 + place // 4)[np.arange(rows) % 32] + np.arange(rows) // 32 * 32
    scales, zeros = (np.repeat(s.astype(np.int32)[:, channel], 128, 0).T for s in (x.scales_i8, x.zeros))
    weights = narrowed(qserve_codes(x.kernel, columns) * scales + zeros)
    sums = f32(x.in_feats.astype(np.int64) @ weights.T.astype(np.int64))
    with np.errstate(over="ignore"):
        return {"out_feats": (sums * (f32(x.wscales)[None] * f32(x.ascales).reshape(-1, 1))).astype(np.float16)}


def qserve_per_channel(x):
    sums = f32(x.in_feats.astype(np.int64) @ qserve_codes(x.kernel, x.in_feats.shape[1]).T.astype(np.int64))
    correction = f32(x.w_szs)[None] * f32(x.a_ssums).reshape(-1, 1)
    with np.errstate(over="ignore"):
        return {"out_feats": (sums * f32(x.wscales)[None] * f32(x.ascales).reshape(-1, 1) - correction).astype(np.float16)}


# ---- attention over lists of slots


def decode_attention(x, seen=lambda n: n, more=lambda most, sink: 0):
    """One query of each request; more(maximum, sink) is what is added to the sum of the weights."""
    heads, width = x.q.shape[1], getattr(x, "v_head_dim", 512)
    group = heads // x.k_buffer.shape[1]
    out = np.zeros((*x.q.shape[:2], width), x.q.dtype)
    for b in range(len(x.q)):
        slots = x.kv_indices[x.kv_indptr[b] : x.kv_indptr[b + 1]]
        slots = slots[: seen(len(slots))]
        for h in range(heads):
            keys = f32(x.k_buffer[slots, h // group])
            values = f32(x.v_buffer[slots, h // group]) if hasattr(x, "v_buffer") else keys[:, :width]
            weights, total, most = softmax_rows(keys @ f32(x.q[b, h]) * F32(x.sm_scale))
            total = total + F32(more(most, f32(x.sinks)[h] if hasattr(x, "sinks") else None))
            out[b, h] = (weights @ values / total).astype(out.dtype)
    return {"o": out}


def extend_attention(x, window=10**6, near=None, more=lambda prefix, at, most, h: 0):
    """New tokens behind a prefix: a query at `at` sees `window` keys before itself, or near(at, prefix, keys); more() is added to the sum."""
    near = near or (lambda at, prefix, keys: slice(max(0, at - window), at + 1))
    heads = x.q_extend.shape[1]
    group = heads // x.k_extend.shape[1]
    out = np.zeros((*x.q_extend.shape[:2], x.v_extend.shape[-1]), x.q_extend.dtype)
    for b in range(len(x.qo_indptr) - 1):
        first, end = x.qo_indptr[b], x.qo_indptr[b + 1]
        slots = x.kv_indices[x.kv_indptr[b] : x.kv_indptr[b + 1]]
        for h in range(heads):
            keys = np.concatenate([f32(x.k_buffer[slots, h // group]), f32(x.k_extend[first:end, h // group])])
            values = np.concatenate([f32(x.v_buffer[slots, h // group]), f32(x.v_extend[first:end, h // group])])
            for i in range(first, end):
                at = len(slots) + i - first
                seen = near(at, len(slots), len(keys))
                weights, total, most = softmax_rows(keys[seen] @ f32(x.q_extend[i, h]) * F32(x.sm_scale))
                out[i, h] = (weights @ values[seen] / (total + F32(more(len(slots), at, most, h)))).astype(out.dtype)
    return {"o_extend": out}


def trtllm_decode(x, query=lambda b, i: (b, i), last=lambda n, queries, i: n - queries + i + 1):
    page, queries = x.kv_cache.shape[-2], x.query.shape[1]
    cache = f32(x.kv_cache).reshape(-1, 576)
    out = np.zeros((*x.query.shape[:3], 512), BF16)
    for b, n in enumerate(x.seq_lens):
        keys = cache[[x.block_tables[b][t // page] * page + t % page for t in range(n)]]
        for i in range(queries):
            near = keys[: last(n, queries, i)]
            if len(near) == 0:
                continue
            weights, total, _ = softmax_rows(f32(x.query[query(b, i)]) @ near.T * F32(x.bmm1_scale))
            out[b, i] = (weights @ near[:, :512] / total * F32(x.bmm2_scale)).astype(BF16)
    return {"out": out}


def flash_mla(x, last):
    """flash_mla_with_kvcache: last(keys, queries, i) is where the keys end that query i sees; the logarithm is natural."""
    cache = f32(x.k_cache).reshape(-1, 576)
    batch, queries, heads, _ = x.q.shape
    out, lse = np.zeros((batch, queries, heads, 512), BF16), np.full((batch, heads, queries), np.inf, F32)
    for b, n in enumerate(x.cache_seqlens):
        keys = cache[[x.block_table[b][t // 64] * 64 + t % 64 for t in range(n)]]
        for i in range(queries):
            near = keys[: max(last(n, queries, i), 0)]
            if len(near):
                weights, total, most = softmax_rows(f32(x.q[b, i]) @ near.T * F32(x.softmax_scale))
                out[b, i] = (weights @ near[:, :512] / total).astype(BF16)
                lse[b, :, i] = (most + np.log(total))[:, 0]
    return {"out": out, "softmax_lse": lse}


def xqa_decode(x, length=lambda b, n: n, zeros=lambda n: 0):
    """xqa_batch_decode_with_kv_cache_mla; zeros(n) is how many keys of zeros count behind n."""
    page = x.kv_cache.shape[-2]
    cache = f32(x.kv_cache).reshape(-1, 576)
    out = np.zeros((*x.query.shape[:3], 512), BF16)
    for b, n in enumerate(x.seq_lens):
        keys = cache[[x.block_tables[b][t // page] * page + t % page for t in range(length(b, n))]]
        keys = np.concatenate([keys, np.zeros((zeros(n), 576), F32)])
        if len(keys):
            weights, total, _ = softmax_rows(f32(x.query[b, 0]) @ keys.T * F32(x.bmm1_scale))
            out[b, 0] = (weights @ keys[:, :512] / total).astype(BF16)
    return {"out": out}


# ---- experts


def per_tensor_moe(x, weights_of=lambda e: e):
    """trtllm_fp8_per_tensor_scale_moe with weights in plain order; weights_of(expert) is where this rank has them, if it has."""
    out = np.zeros((len(x.hidden_states), x.hidden_states.shape[1]), F32)
    half = x.gemm1_weights.shape[1] // 2
    for t, logits in enumerate(f32(x.routing_logits)):
        ids = largest(logits, x.top_k)
        shares = np.exp(logits[ids] - logits[ids].max())
        for e, share in zip(ids, through(BF16, shares / shares.sum(dtype=F32))):
            at = weights_of(e)
            if not 0 <= at < len(x.gemm1_weights):
                continue
            both = f32(x.gemm1_weights[at]) @ f32(x.hidden_states[t])
            up, gate = both[:half] * x.output1_scales_scalar[at], both[half:] * x.output1_scales_gate_scalar[at]
            hidden = f32(e4m3(silu(gate) * up))
            out[t] += share * through(BF16, f32(x.gemm2_weights[at]) @ hidden * x.output2_scales_scalar[at])
    return {"output": out.astype(BF16)}


def silu(g):
    return g / (F32(1) + np.exp(-g))


def fused_experts(x, activation):
    """cutlass_fused_moe of 16 bits: up before gate."""
    out = np.zeros((len(x.input), x.fc2_expert_weights.shape[1]), np.float32)
    for t, ids in enumerate(x.token_selected_experts):
        for k, e in enumerate(ids):
            both = f32((f32(x.fc1_expert_weights[e]) @ f32(x.input[t])).astype(BF16))
            hidden = f32(activation(both[len(both) // 2 :], both[: len(both) // 2], e).astype(BF16))
            out[t] += f32((f32(x.fc2_expert_weights[e]) @ hidden).astype(BF16)) * x.token_final_scales[t, k]
    return {"output": out.astype(BF16)}


# ---- draft trees and draws


def draft_trees(x, room, begin=lambda lengths, b: lengths[b], root_sees_all=False):
    """build_tree_kernel_efficient with masks of rows of draft_token_num."""
    count, batch = x.draft_token_num, len(x.parent_list)
    mask = np.ones((batch, count, count), bool)
    positions, following, sibling = (np.full((batch, count), v, np.int64) for v in (0, -1, -1))
    for b in range(batch):
        chosen = list(x.selected_index[b])
        parent = [0] * count
        for i in range(1, count):
            slot = chosen[i - 1] // x.topk
            parent[i] = 0 if slot == 0 else chosen.index(x.parent_list[b][slot]) + 1
        for i in range(count - 1, 0, -1):
            sibling[b, i] = following[b, parent[i]]
            following[b, parent[i]] = i
        for i in range(count):
            if i > 0 or not root_sees_all:
                mask[b, i, 1:] = False
            depth, node = 0, i
            while node > 0:
                mask[b, i, node] = True
                depth, node = depth + 1, parent[node]
            positions[b, i] = begin(x.verified_seq_len, b) + depth
    index = np.arange(batch * count, dtype=np.int64).reshape(batch, count)
    tree_mask = np.ones(room, bool)
    tree_mask[: mask.size] = mask.reshape(-1)
    return {"tree_mask": tree_mask, "positions": positions.reshape(-1), "retrive_index": index, "retrive_next_token": following, "retrive_next_sibling": sibling}


def philox_uniform(seed, subsequence, number):
    """The number-th uniform number in (0, 1] of cuRAND's Philox4x32-10."""
    mask = 0xFFFFFFFF
    counter = [number // 4 & mask, number // 4 >> 32, subsequence & mask, subsequence >> 32]
    key = [seed & mask, seed >> 32 & mask]
    for _ in range(10):
        a, b = counter[0] * 0xD2511F53, counter[2] * 0xCD9E8D57
        counter = [(b >> 32) ^ counter[1] ^ key[0], b & mask, (a >> 32) ^ counter[3] ^ key[1], a & mask]
        key = [(key[0] + 0x9E3779B9) & mask, (key[1] + 0xBB67AE85) & mask]
    return F32(counter[number % 4]) * F32(2.0**-32) + F32(2.0**-33)


def top_k_top_p(x, joint):
    """Rejection with two pivots, of the row itself (joint) or of what top_k leaves of it."""
    samples = np.zeros(len(x.probs), np.int32)
    for b, row in enumerate(x.probs.astype(np.float64)):
        if not joint:
            row = np.where(row >= np.sort(row)[-x.top_k], row, 0)
            row /= row.sum()
        low, high, mass, number = 0.0, 1.0, 1.0, getattr(x, "philox_offset", 0)
        accepts = lambda pivot: row[row > pivot].sum() < x.top_p and (not joint or (row > pivot).sum() < x.top_k)
        while True:
            share = philox_uniform(getattr(x, "philox_seed", 0), b, number) * mass
            number += 1
            sums = np.cumsum(np.where(row > low, row, 0))
            token = int(np.argmax(sums > share)) if (sums > share).any() else int(np.flatnonzero(row > low)[-1])
            a, middle = row[token], (row[token] + high) / 2
            if accepts(a):
                break
            low, high, mass = (a, middle, row[row > a].sum()) if accepts(middle) else (middle, high, row[row > middle].sum())
        samples[b] = token
    return {"samples": samples}


def fused_moe_pairs(x, weights):
    """fused_moe_kernel of 16 bits: each pair's row, times its weight."""
    out = np.zeros((*x.topk_ids.shape, x.B.shape[1]), BF16)
    for t, ids in enumerate(x.topk_ids):
        for k, e in enumerate(ids):
            out[t, k] = (f32(x.B[e]) @ f32(x.A[t]) * F32(weights[t, k])).astype(BF16)
    return {"C": out}


def mxfp8_quantize(x, power, largest=lambda amax: amax):
    groups = f32(x.input).reshape(len(x.input), -1, 32)
    with np.errstate(all="ignore"):
        byte = np.clip(power(largest(np.abs(groups).max(-1)).astype(np.float64) / 448) + 127, 0, 254).astype(np.uint8)
    scaled = groups * np.exp2(127.0 - byte)[..., None].astype(F32)
    rows, columns = -(-len(groups) // 128) * 128, -(-groups.shape[1] // 4) * 4
    return {"x_q": e4m3(scaled.reshape(x.input.shape)), "sf": in_tiles(byte, rows, columns, np.uint8).view(E8M0)}
