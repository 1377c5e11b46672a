#!/usr/bin/env python3
"""Makes the inputs of a generated case anew, with NumPy alone, and compares their digests with those in the file.

usage: regenerate_inputs.py CASE.safetensors [-o inputs.npz]

The case file (`dodona gen LINE -o CASE.safetensors`, compact or not) says how each input is made; docs/inputs.md says what the words mean.
"""
import argparse
import hashlib
import json
import re
import struct
import sys

import numpy as np

U32, U64 = np.uint32, np.uint64
LOW = U64(0xFFFFFFFF)


def words(seed, tensor, index):
    """Philox4x32-10: word `index` (an array) of the tensor's stream."""
    tensor_id = 0xCBF29CE484222325
    for byte in tensor.encode():
        tensor_id = (tensor_id ^ byte) * 0x100000001B3 % 2**64
    block = index.astype(U64) >> U64(2)
    c = [block & LOW, block >> U64(32), np.full_like(block, tensor_id & 0xFFFFFFFF), np.full_like(block, tensor_id >> 32)]
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32
    for _ in range(10):
        p0, p1 = U64(0xD2511F53) * c[0], U64(0xCD9E8D57) * c[2]
        c = [(p1 >> U64(32)) ^ c[1] ^ U64(k0), p1 & LOW, (p0 >> U64(32)) ^ c[3] ^ U64(k1), p0 & LOW]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.choose((index & 3).astype(int), c)


class Draw:
    def __init__(self, seed, name):
        self.seed, self.name = seed, name

    def uniform(self, i):
        w = words(self.seed, self.name, i).astype(np.float32)
        return (w * np.float32(2**-32) + np.float32(2**-33)).astype(np.float64)

    def normal(self, i):
        first, second = words(self.seed, self.name, i & ~1), words(self.seed, self.name, i | 1)
        radius = np.sqrt(-2 * np.log((first.astype(np.float64) + 0.5) * 2.0**-32))
        angle = second.astype(np.float64) * float.fromhex("0x1.921fb54442d18p-30")
        return np.where(i % 2 == 0, radius * np.cos(angle), radius * np.sin(angle)).astype(np.float32).astype(np.float64)

    def below(self, i, n):
        low = words(self.seed, self.name + "/choice", 2 * i)
        high = words(self.seed, self.name + "/choice", 2 * i + 1)
        n = np.asarray(n, U64)
        # floor((low + 2^32 high) * n / 2^64), n below 2^32
        return ((high * n + ((low * n) >> U64(32))) >> U64(32)).astype(np.int64)

    def again(self, i, n):
        return self.below(i + 2**40, n)


# Largest and smallest positive value, and for the small types (exponent bits, mantissa bits, bias).
LARGEST = {"f64": 1.7976931348623157e308, "f32": 3.4028234663852886e38, "f16": 65504.0, "bf16": 3.3895313892515355e38,
           "f8_e4m3": 448.0, "f8_e5m2": 57344.0, "f4_e2m1": 6.0, "f8_e8m0": 2.0**127}
SMALLEST = {"f64": 5e-324, "f32": 2.0**-149, "f16": 2.0**-24, "bf16": 2.0**-133, "f8_e4m3": 2.0**-9, "f8_e5m2": 2.0**-16,
            "f4_e2m1": 0.5, "f8_e8m0": 2.0**-127}
NAN = {"f32": 0x7FC00000, "f16": 0x7FFF, "bf16": 0x7FFF, "f8_e4m3": 0x7F, "f8_e5m2": 0x7F}
BITS = {"f64": 64, "f32": 32, "f16": 16, "bf16": 16, "f8_e4m3": 8, "f8_e5m2": 8, "f8_e8m0": 8, "f4_e2m1": 4, "i4": 4, "i8": 8, "u8": 8,
        "i16": 16, "i32": 32, "i64": 64, "bool": 8}


def by_dist(d, dtype, dist, i, limit=np.inf):
    z = d.normal(i)
    if dist == "uniform":
        return 2 * d.uniform(i) - 1
    if dist == "outliers":
        return np.where(d.below(i, 256) == 0, 64 * z, z)
    if dist == "wide-exponent":
        e = d.below(i, 33) - 16
        return np.ldexp(z, np.trunc(e / 4).astype(int) if BITS[dtype] <= 8 else e)
    if dist == "ties":
        return np.rint(2 * z) / 2
    if dist == "edge":
        big, tiny = min(LARGEST[dtype] / 4, limit), SMALLEST[dtype]
        table = np.array([0.0, -0.0, 1, -1, 0.5, -1.5, big, -big, tiny, -tiny, 2**-6, -3])
        return np.where(d.below(i, 2) == 0, z, table[d.again(i, 12)])
    return z


def scales(d, dtype, dist, i):
    t = 2 * d.uniform(i) - 1
    s = np.exp2(t)
    if dist == "outliers":
        s = np.where(d.below(i, 256) == 0, 64 * s, s)
    elif dist == "wide-exponent":
        s = np.exp2((6 if BITS[dtype] <= 8 else 16) * t)
    elif dist == "ties":
        s = np.exp2(np.rint(1.5 * t))
    elif dist == "edge":
        s = np.where(d.below(i, 4) == 0, np.array([1e-8, 2**-20, 1, 16])[d.again(i, 4)], s)
    return np.maximum(s, SMALLEST[dtype])


def scale_words(d, dist, i):
    word = 0
    for j in range(4):
        at = 4 * i + j
        code = 127 + np.rint((16 if dist == "wide-exponent" else 1.5) * (2 * d.uniform(at) - 1)).astype(np.int64)
        if dist == "outliers":
            code = np.where(d.below(at, 256) == 0, code + 6, code)
        elif dist == "edge":
            code = np.where(d.below(at, 4) == 0, np.array([100, 107, 127, 131])[d.again(at, 4)], code)
        word = word | code << 8 * j
    return word


def distinct(d, count, bound, width):
    if bound < width:
        return d.below(np.arange(count), bound)
    ids = np.empty(count, np.int64)
    for row in range(count // width if width else 0):
        pool = np.arange(bound)
        steps = np.arange(width)
        for k, step in enumerate(d.below(row * width + steps, bound - steps)):
            pool[k], pool[k + step] = pool[k + step], pool[k]
        ids[row * width:(row + 1) * width] = pool[:width]
    return ids


ALONE = {"values", "weight", "logits", "lse_base_2", "lse_base_e", "scale", "coins"}  # elements that need no others


def part_of(t):
    """Numbers, in the whole tensor, of the elements of the part that is made."""
    place = np.zeros(1, np.int64)
    for size, (begin, end) in zip(t["shape"], t.get("part") or [(0, n) for n in t["shape"]]):
        place = (place[:, None] * size + np.arange(begin, end)).ravel()
    return place


def make(t, dist, seed, i):
    """Numbers (floats), or raw integers, of elements i of one input."""
    name, role, dtype, shape, bound = t["name"], t["role"], t["dtype"], t["shape"], t.get("bound", 0)
    d = Draw(seed, name)
    if role == "values":
        if dtype == "bool":
            return d.below(i, 2)
        if dtype[0] in "iu":
            return words(seed, name, i).astype(np.int64)
        return by_dist(d, dtype, dist, i, t.get("edge_limit", np.inf)) * (16 if dtype in ("f8_e4m3", "f8_e5m2") else 1)
    if role == "weight":
        return 1 + 0.25 * d.normal(i)
    if role == "logits":
        return 2 * by_dist(d, dtype, dist, i)
    if role.startswith("lse"):
        return np.where((d.below(i, 8) == 0) & (dist == "edge"), -np.inf, 3 * d.normal(i))
    if role == "scale":
        return scale_words(d, dist, i) if dtype == "i32" else scales(d, dtype, dist, i)
    if role == "coins":
        return np.where((d.below(i, 4) == 0) & (dist == "edge"), 0, d.uniform(i))
    return whole(d, role, shape, bound, dist)[i]


def whole(d, role, shape, bound, dist):
    """As make(), of roles whose elements depend on each other."""
    count, width = int(np.prod(shape, dtype=np.int64)), shape[-1] if shape else 1
    i = np.arange(count, dtype=np.int64)
    if role == "positions":
        return d.below(i, bound) if bound else np.zeros(count, np.int64)
    if role == "lengths":
        return np.where(i == 0, bound - 1, 1 + d.below(i, bound - 1)) if bound > 1 else np.zeros(count, np.int64)
    if role == "indices":
        return distinct(d, count, bound, count)
    if role == "expert_ids":
        return distinct(d, count, bound, width)
    if role == "page_table":
        return distinct(d, count, bound, count if bound >= count else width)
    if role == "indptr":
        return np.sort(np.concatenate([[0], d.below(i[1:-1], bound + 1), [bound]]))[:count]
    if role == "cos_sin":
        angle = np.outer(np.arange(count // width), 10000.0 ** (-2.0 * np.arange(width // 2) / width))
        return np.concatenate([np.cos(angle), np.sin(angle)], axis=1).ravel()
    if role == "probs":
        v = 2 * (d.normal(i) if dist == "edge" else by_dist(d, "f32", dist, i))
        e = np.exp(np.clip(v, -60, 60)).reshape(-1, width)
        if dist == "edge":
            e = np.where((d.below(i, 4) == 0).reshape(e.shape) & (np.arange(width) > 0), 0, e)
        return (e / np.add.accumulate(e, axis=1)[:, -1:]).ravel()
    raise SystemExit(f"unknown role {role}")


def special_draw(special, name, seed):
    return Draw(seed, ("lse" if special in ("empty-lse", "empty-lse-rows") else name) + "/" + special)


def struck_numbers(t, x, dist, seed, i):
    """Specials of numbers: what they make of elements i, drawn as x."""
    width = t["shape"][-1] if t["shape"] else 1
    rows = int(np.prod(t["shape"], dtype=np.int64)) // max(width, 1)
    row, column = i // max(width, 1), i % max(width, 1)
    for special in t.get("special", []):
        d = special_draw(special, t["name"], seed)
        if special.endswith("-rows") or special in ("zero-groups", "nan-elements", "infinite-elements", "fp8-ties"):
            here = (d.below(row, 8) == 0) | (row == d.again(np.zeros(1, np.int64), rows))
            one = here & (column == d.again(row + 1, width))
        if special in ("zero-rows", "empty-lse-rows", "nan-rows"):
            x = np.where(here, {"z": 0, "e": -np.inf, "n": np.nan}[special[0]], x)
        elif special == "tiny-rows":
            x = np.where(here, x * 2.0**-8, x)
        elif special == "equal-rows":
            x = np.where(here, make(t, dist, seed, row * width), x)
        elif special == "zero-groups":
            x = np.where(here & (column // 128 == d.again(row + 1, width) // 128), 0, x)
        elif special == "nan-elements":
            x = np.where(one, np.nan, x)
        elif special == "infinite-elements":
            x = np.where(one, np.copysign(np.inf, x), x)
        elif special == "fp8-ties":
            tie = np.ldexp(17.0 + 2 * d.again(rows + i + 1, 8), d.below(rows + i + 1, 6) - 8)
            x = np.where(here, np.where(column % 128 == 0, 7.0, np.copysign(tie, x)), x)
        elif special in ("minus-infinite-logits", "empty-lse", "one-sided-lse"):
            x = np.where(d.below(i, 8) == 0, -np.inf, x)
        elif special == "infinite-lse":
            x = np.where(d.below(i, 8) == 0, np.inf, x)
        elif special == "negative-weights":
            x = x - 4
        elif special == "bf16-weights":
            x = (encode(x, "bf16").astype(U32) << 16).view(np.float32).astype(np.float64)
        elif special == "zero-scales":
            x = np.where(d.below(i, 8) == 0, 0, x)
        elif special == "tiny-scales":
            x = np.where(d.below(i, 8) == 0, 1e-23, x)
        elif special == "largest-scales":
            x = np.where(d.below(i, 8) == 0, min(448.0, LARGEST[t["dtype"]]), x)
        elif special == "saturating-scales":
            x = x * 4096
        elif special == "fresh-scales":
            x = x * 0
    return x


EDGES = np.array([1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129])


def struck_ids(t, ids, seed):
    """Specials of ids, lengths and offsets."""
    count, width, bound = len(ids), t["shape"][-1] if t["shape"] else 1, t.get("bound", 0)
    i, ids = np.arange(count), ids.copy()
    for special in t.get("special", []):
        d = special_draw(special, t["name"], seed)
        if special == "edge-lengths" and t["role"] == "indptr":
            ids[1:-1] = np.minimum(bound, np.cumsum(EDGES[d.below(i[1:-1], len(EDGES))]))
        elif special == "edge-lengths" and (EDGES <= bound - 1).any():
            ids[1:] = EDGES[d.below(i[1:], (EDGES <= bound - 1).sum())]
        elif special == "one-group":
            ids[1:-1] = np.where(i[1:-1] > d.below(i[:1], count - 1), bound, 0)
        elif special == "short-offsets":
            ids = np.minimum(ids, bound - max(bound // 4, 1))
        elif special == "absent-ids":
            ids = np.where(d.below(i, 8) == 0, -1, ids)
        elif special == "repeated-ids":
            ids[1::width] = ids[0::width]
        elif special in ("one-expert", "shared-pages"):
            ids = ids[i % width]
        elif special == "first-slot":
            ids = np.where(i == 0, 0, np.where(ids == 0, ids[0], ids))
        elif special == "repeated-slots":
            ids[1] = ids[0]
    return ids


def stale(t, x, made, seed):
    """A cache with NaN and the largest number in the slots that no request looks at, or rows behind those that groups have."""
    table, lengths = made.get(t["slots"].get("table")), made.get(t["slots"].get("lengths"))
    in_groups = table is None
    page = 1 if lengths is None or (in_groups and len(t["shape"]) == 2) else t["shape"][1]
    used = np.zeros(t["shape"][0] * page, bool)
    table = None if in_groups else table.astype(np.int64)
    if in_groups:
        row, each = np.arange(len(used)), len(used) // len(lengths)
        used = row % each < lengths.astype(np.int64)[row // each]
    elif lengths is None:
        used[table[(table >= 0) & (table < len(used))]] = True
    else:
        for pages, length in zip(table, lengths.astype(np.int64)):
            k = np.arange(min(length, table.shape[1] * page))
            at = pages[k // page]
            used[(at * page + k % page)[(at >= 0) & (at < t["shape"][0])]] = True
    slots = np.arange(len(used))
    special = "stale-rows" if in_groups else "stale-cache"
    filling = np.where(special_draw(special, t["name"], seed).below(slots, 2) == 0, np.nan, LARGEST[t["dtype"]])
    return np.where(used[:, None], x.reshape(len(used), -1), filling[:, None]).ravel()


def up_to_tile(rows):
    return -(-int(rows) // 128) * 128


def grouped_product(offsets, m_at, n_axis):
    """Grouped products whose experts' first rows are in `offsets`: strides, and problem sizes with an expert's rows at m_at."""

    def make(name, made, plan):
        shapes = {t["name"]: t["shape"] for t in plan["tensors"]}
        (m, k), experts, n = shapes["a"], shapes["b"][0], shapes["b"][n_axis]
        if name != "problem_sizes":
            return np.full(int(np.prod(shapes[name])), n if name in ("stride_c", "stride_d", "d_strides", "s_strides") else k)
        rows = np.diff(np.append(made[offsets].astype(np.int64), m))
        sizes = np.full((experts, 3), n)
        sizes[:, m_at] = rows - np.where(rows > 0, Draw(plan["seed"], name).below(np.arange(experts), 2), 0)
        sizes[:, 2] = k
        return sizes.ravel()

    return make


def sorted_pairs(name, made, plan):
    """fused_moe_kernel: pairs sorted by expert in whole blocks, the expert of each block, and how many ids blocks cover."""
    shapes, attrs = {t["name"]: t["shape"] for t in plan["tensors"]}, plan["attrs"]
    ids, experts, block = made["topk_ids"].ravel(), shapes["B"][0], attrs.get("BLOCK_SIZE_M", 16)
    absent = Draw(plan["seed"], "expert_ids").below(np.arange(experts), 8) == 0 if attrs.get("filter_expert", True) else np.zeros(experts, bool)
    pairs, names = [], []
    for e in range(-1, experts):
        mine = np.flatnonzero(ids == e) if e >= 0 else np.flatnonzero((ids < 0) | (ids >= experts))
        blocks = -(-mine.size // block)
        pairs += [*mine, *[ids.size] * (blocks * block - mine.size)]
        names += [e if e >= 0 and not absent[e] else -1] * blocks
    room = min(shapes["sorted_token_ids"][0] // block, shapes["expert_ids"][0], len(names))
    pairs, names = pairs[: room * block], names[:room]
    if name == "num_tokens_post_padded":
        return np.array([len(pairs)])
    size, filling = shapes[name][0], ids.size if name == "sorted_token_ids" else 0
    found = pairs if name == "sorted_token_ids" else names
    return np.array(found + [filling] * (size - len(found)))


def grouped_fp4_product(name, made, plan):
    """cutlass_fp4_group_mm: what is said of the experts' rows, from expert_offsets."""
    shapes = {t["name"]: t["shape"] for t in plan["tensors"]}
    (m, packed), (experts, n, _) = shapes["a_fp4"], shapes["b_fp4"]
    if name in ("ab_strides", "c_strides"):
        return np.full(experts, 2 * packed if name == "ab_strides" else n)
    rows = np.diff(np.append(made["expert_offsets"].astype(np.int64), m))
    choice = Draw(plan["seed"], name).below(np.arange(experts), 2)
    if name == "problem_sizes":
        return np.stack([rows - np.where(rows > 0, choice, 0), np.full(experts, n), np.full(experts, 2 * packed)], axis=1).ravel()
    if "problem_sizes" in made:
        rows = made["problem_sizes"].astype(np.int64)[:, 0]
    spare = shapes["a_blockscale"][0] // 128 - sum(up_to_tile(r) // 128 for r in rows)
    places, at = [], 0
    for r, gap in zip(rows, choice):
        if spare > 0 and gap == 1:
            at, spare = at + 128, spare - 1
        places.append(at)
        at += up_to_tile(r)
    return np.array(places)


def grouped_fp4_rows(name, made, plan):
    """scaled_fp4_experts_quant: where each expert's scales begin, and the end."""
    offsets = made["expert_offsets"].astype(np.int64)
    choice, places, at = Draw(plan["seed"], name).below(np.arange(len(offsets)), 2), [], 0
    for rows, gap in zip(np.append(np.diff(offsets), 0), choice):
        places.append(at + 128 * gap)
        at = places[-1] + up_to_tile(rows)
    return np.array(places)


def moe_factors(name, made, plan):
    """trtllm_fp8_block_scale_moe, trtllm_fp4_block_scale_moe, trtllm_fp8_per_tensor_scale_moe: factors that make gates of order 1."""
    shape = next(t["shape"] for t in plan["tensors"] if t["name"] == name)
    gated = plan["attrs"].get("gated", True)
    unit = {"hidden_states_scale": 2.0**-19, "output1_scale_scalar": 2.0**-13 if gated else 2.0**-7, "output1_scale_gate_scalar": 2.0**-14, "output1_scales_scalar": 2.0**-15 if gated else 2.0**-4, "output1_scales_gate_scalar": 2.0**-19}[name]
    return (128 + Draw(plan["seed"], name).below(np.arange(int(np.prod(shape))), 256)) * unit


def cutlass_moe_factors(name, made, plan):
    """cutlass_fused_moe: factors and scales that make gates of order 1."""
    of = {t["name"]: t for t in plan["tensors"]}
    shape, draw = of[name]["shape"], Draw(plan["seed"], name)
    at = np.arange(int(np.prod(shape)))
    if of[name]["dtype"] == "f8_e4m3":
        return 2.0 ** (draw.below(at, 4) - 2)
    unit = {"fc1_act_scale": 2.0**-2, "fc1_weight_scale": 2.0**-16, "fc1_dequant": 2.0**-14 if of["input"]["dtype"] == "u8" else 2.0**-19, "fc2_act_scale": 2.0**-4, "fc2_dequant": 2.0**-19}
    return (128 + draw.below(at, 256)) * unit[name]


def qserve_scales(name, made, plan):
    """qserve_w4a8_per_group_gemm: scales whose products with a code fit in a byte."""
    return Draw(plan["seed"], name).below(np.arange(made["zeros"].size), 18)


def whole_pages(name, made, plan):
    """Transfers by pages: page_size times distinct numbers of pages, and the slots behind."""
    shapes = {t["name"]: t["shape"] for t in plan["tensors"]}
    own, other = shapes[name.replace("indices", "ptrs")], shapes[("dst" if name == "src_indices" else "src") + "_ptrs"]
    paged = max(own, other, key=len)  # [groups, pages, layers, slots of a page, item]; the other has [layers, slots, item]
    size, count = paged[3], shapes[name][0] // paged[3]
    pages = own[1] if own is paged else own[1] // size
    return (distinct(Draw(plan["seed"], name), count, pages, count)[:, None] * size + np.arange(size)).ravel()


def prefix_chunks(name, made, plan):
    """create_chunked_prefix_cache_kv_indices: how long chunks are, and where they begin."""
    lengths = np.diff(made["chunk_cu_seq_lens"].astype(np.int64))
    columns = next(t["shape"] for t in plan["tensors"] if t["name"] == "req_to_token")[1]
    return lengths if name == "chunk_seq_lens" else Draw(plan["seed"], name).below(np.arange(len(lengths)), np.maximum(columns - lengths, 0) + 1)


def ragged_lengths(name, made, plan):
    """trtllm_ragged_attention_deepseek: the keys of each request."""
    return np.diff(made["cum_seq_lens_kv"].astype(np.int64))


def flash_mla_parts(name, lengths, parts, tokens=False):
    """What each part of a GPU works on, in blocks or in tokens, and the running sums of the splits."""
    blocks = -(-lengths // 64) if tokens else np.maximum(lengths - 1, 0) // 64 + 1
    payload = -(-int((blocks + 5).sum()) // parts) + 5
    rows, splits, now, done, split = [], [0], 0, 0, 0
    for _ in range(parts):
        row, left = [now, done, 0, 0, split, 0, 0, 0], payload
        while now < len(lengths):
            if left < blocks[now] - done + 5:
                if left > 5:
                    done, split = done + left - 5, split + 1
                break
            left -= blocks[now] - done + 5
            splits.append(splits[-1] + split + 1)
            now, done, split = now + 1, 0, 0
        row[2:4] = (now, done) if done else (now - 1, blocks[now - 1] if now and lengths[now - 1] else 0)
        if tokens:
            row[1], row[3] = 64 * row[1], min(64 * row[3], lengths[row[2]])
        elif row[0] == len(lengths):
            row[0] = -1
        rows.append(row)
    return np.array(rows).ravel() if name == "tile_scheduler_metadata" else np.array(splits)


def flash_mla_schedule(name, made, plan):
    """flash_mla_with_kvcache: how the requests' tokens are shared out."""
    tensors = {t["name"]: t for t in plan["tensors"]}
    lengths, parts = made["cache_seqlens"].astype(np.int64), tensors["tile_scheduler_metadata"]["shape"][0]
    return flash_mla_parts(name, lengths, parts, tokens=tensors["q"]["dtype"] == "f8_e4m3")


def sparse_decode(name, made, plan):
    """flash_mla_sparse_decode: rows of the cache, slots with some absent, and how they are shared out."""
    shapes = {t["name"]: t["shape"] for t in plan["tensors"]}
    if name == "k_cache":
        return k_cache_rows(name, made, plan, powers=4)
    (requests, _, topk), (pages, *_) = shapes["indices"], shapes["k_cache"]
    if name == "indices":
        draw, i = Draw(plan["seed"], name), np.arange(np.prod(shapes["indices"], dtype=np.int64))
        return np.where((draw.again(i, 10) == 9) | (pages == 0), -1, draw.below(i, max(64 * pages, 1)).astype(np.int64))
    return flash_mla_parts(name, np.full(requests, topk), shapes["tile_scheduler_metadata"][0])


def sparse_rows(name, made, plan):
    """flash_mla_sparse_fwd: rows, some -1 and some behind the last one."""
    shapes = {t["name"]: t["shape"] for t in plan["tensors"]}
    draw, i, rows = Draw(plan["seed"], name), np.arange(np.prod(shapes["indices"], dtype=np.int64)), shapes["kv"][0]
    kind, row = draw.again(i, 10), draw.below(i, max(rows, 1)).astype(np.int64)
    return np.where((kind == 9) | (rows == 0), -1, row + rows * (kind == 8))


def prefill_requests(name, made, plan):
    """context_attention_fwd: lengths that add up to the tokens, and where requests begin."""
    shapes = {t["name"]: t["shape"] for t in plan["tensors"]}
    (requests,), tokens = shapes["b_seq_len"], shapes["q"][0]
    ends = np.sort(np.concatenate([[0], Draw(plan["seed"], "b_seq_len").below(np.arange(requests - 1), tokens + 1), [tokens]]))
    return np.diff(ends) if name == "b_seq_len" else ends[:-1]


def paged_requests(name, made, plan):
    """batch_mla_paged_attention: tokens of each request, and where its pages begin."""
    shapes = {t["name"]: t["shape"] for t in plan["tensors"]}
    (requests,), (indices,), page_size = shapes["kv_len_arr"], shapes["kv_indices"], shapes["ckv_cache"][1]
    most = page_size * (indices // requests)
    lengths = Draw(plan["seed"], "kv_len_arr").below(np.arange(requests), most + 1)
    lengths[0] = most
    return lengths if name == "kv_len_arr" else np.append(0, np.cumsum(-(-lengths // page_size)))


def extend_masks(name, made, plan):
    """extend_attention_fwd: keys that rows of masks begin with, and where each request's mask begins."""
    queries, keys = np.diff(made["qo_indptr"].astype(np.int64)), np.diff(made["kv_indptr"].astype(np.int64))
    leads = Draw(plan["seed"], "window_kv_offsets").below(np.arange(len(queries)), 4)
    if name == "window_kv_offsets":
        return leads
    given = any(t["name"] == "window_kv_offsets" for t in plan["tensors"])
    windowed = plan["attrs"].get("sliding_window_size", -1) > 0
    return np.cumsum(np.append(0, queries * (keys + queries + leads * (given and windowed))))


def k_cache_rows(name, made, plan, powers=16):
    """dequantize_k_cache: 512 codes, four scales, 64 elements of bf16."""
    shape = next(t["shape"] for t in plan["tensors"] if t["name"] == name)
    draw, first = Draw(plan["seed"], name), np.arange(np.prod(shape, dtype=np.int64)).reshape(-1, 656)
    codes = draw.below(first[:, :512].ravel(), 254).reshape(-1, 512)
    at = first[:, 512:528:4].ravel()
    scales = (119 + draw.below(at, powers) << 23 | draw.again(at, 1024) << 13).astype(np.uint32)
    at = first[:, 528::2].ravel()
    rope = (0x3C00 + draw.below(at, 1024) + (draw.again(at, 2) << 15)).astype(np.uint16)
    parts = (codes + (codes >= 127)).astype(np.uint8), scales.view(np.uint8).reshape(-1, 16), rope.view(np.uint8).reshape(-1, 128)
    return np.concatenate(parts, axis=1).ravel()


def dispatched_rows(name, made, plan):
    """deepep_low_latency_combine: which token each expert's rows are, rank by rank, and where the rows of each rank lie."""
    shapes = {t["name"]: t["shape"] for t in plan["tensors"]}
    (experts, room, _), (ranks, tokens, topk) = shapes["x"], shapes["topk_idx"]
    ids = made["topk_idx"].astype(np.int64).reshape(ranks, tokens * topk)
    source, ranges, used = np.zeros((experts, room), np.int64), np.zeros((experts, ranks), np.int64), np.zeros(experts, np.int64)
    for r in range(ranks):
        for e in range(experts):
            rows = (np.flatnonzero(ids[r] == e) // topk)[: room - used[e]]
            source[e, used[e] : used[e] + len(rows)] = rows
            ranges[e, r] = used[e] << 32 | len(rows)
            used[e] += len(rows)
    return (source if name == "src_info" else ranges).ravel()


def received_rows(name, made, plan):
    """deepep_combine: which tokens went to which rank, as far as it has rows, their order there, and how many came from each rank."""
    shapes = {t["name"]: t["shape"] for t in plan["tensors"]}
    (ranks, room), tokens = shapes["recv_src_idx"], shapes["is_token_in_rank"][1]
    went = Draw(plan["seed"], "is_token_in_rank").below(np.arange(ranks * tokens * ranks), 3).reshape(-1, ranks) != 0
    went &= np.cumsum(went, axis=0) <= room
    if name == "is_token_in_rank":
        return went.astype(np.uint8).ravel()
    if name == "rank_prefix_matrix":
        return np.cumsum(went, axis=0)[tokens - 1 :: tokens].ravel()
    source = np.zeros((ranks, room), np.int64)
    for rank in range(ranks):
        rows = np.flatnonzero(went[:, rank]) % tokens
        source[rank, : len(rows)] = rows
    return source.ravel()


def starts_of_rows(name, made, plan):
    """fast_topk_v2 and its fused forms: columns at which each row still ends within score."""
    columns = next(t["shape"] for t in plan["tensors"] if t["name"] == "score")[1]
    lengths = made["lengths"].astype(np.int64)
    return Draw(plan["seed"], name).below(np.arange(len(lengths)), np.maximum(columns - lengths, 0) + 1)


def tree_links(name, made, plan):
    """Random draft trees: children of each node in rising order."""
    shapes = {t["name"]: t["shape"] for t in plan["tensors"]}
    requests, nodes = shapes["retrive_index"]
    child, sibling = np.full(requests * nodes, -1), np.full(requests * nodes, -1)
    draw = Draw(plan["seed"], "retrive_next_token")
    for i in reversed(range(requests * nodes)):
        if i % nodes:
            parent = i - i % nodes + int(draw.below(np.array([i]), i % nodes)[0])
            sibling[i], child[parent] = child[parent], i % nodes
    return {"retrive_index": np.arange(requests * nodes), "retrive_next_token": child, "retrive_next_sibling": sibling}[name]


def verified_tree(name, made, plan):
    """verify_tree_greedy and tree_speculative_sampling_target_only."""
    shapes = {t["name"]: t["shape"] for t in plan["tensors"]}
    if name.startswith("retrive"):
        return tree_links(name, made, plan)
    count = int(np.prod(shapes[name]))
    bound = shapes["target_probs"][2] if "target_probs" in shapes else 4
    return Draw(plan["seed"], name).below(np.arange(count), bound)


def candidate_tree(name, made, plan):
    """build_tree_kernel_efficient: a beam, what is selected of it, and lengths."""
    shapes, attrs = {t["name"]: t["shape"] for t in plan["tensors"]}, plan["attrs"]
    (requests, width), topk, nodes = shapes["parent_list"], attrs["topk"], attrs["draft_token_num"]
    draw = Draw(plan["seed"], name)
    if name == "parent_list":
        slot = np.arange(width)
        step, rank = (slot - 1) // topk, (slot - 1) % topk
        choice = draw.below(np.arange(requests * width), topk).reshape(requests, width)
        return np.where(slot <= topk, slot - 1, topk + topk * topk * (step - 1) + topk * rank + choice).ravel()
    if name == "verified_seq_len":
        if attrs["tree_mask_mode"] != 0:
            return draw.below(np.arange(requests), 1000)
        total = int(re.search(r" n=(\d+)", plan["line"])[1]) // nodes - requests * nodes
        return np.diff(np.concatenate([[0], np.sort(draw.below(np.arange(requests - 1), total + 1)), [total]]))
    selected = []
    for b, parents in enumerate(made["parent_list"].astype(np.int64)):
        slots = {int(c): s for s, c in reversed(list(enumerate(parents))) if s}
        free, chosen = list(range(topk)), []
        for i in range(nodes - 1):
            chosen.append(free.pop(int(draw.below(np.array([b * (nodes - 1) + i]), len(free))[0])))
            if chosen[-1] in slots:
                free = sorted(free + [slots[chosen[-1]] * topk + c for c in range(topk)])
        selected += sorted(chosen)
    return np.array(selected)


def packed_segments(name, made, plan):
    """segment_packbits: where each segment and its bytes begin."""
    shapes = {t["name"]: t["shape"] for t in plan["tensors"]}
    (count,), (n,) = shapes["input_indptr"], shapes["x"]
    if name == "input_indptr":
        return np.sort(np.concatenate([[0], Draw(plan["seed"], name).below(np.arange(count - 2), n + 1), [n]]))[-count:]
    return np.concatenate([[0], np.cumsum(-(-np.diff(made["input_indptr"].astype(np.int64)) // 8))])


def group_blocks(name, made, plan):
    """m_grouped_fp8_gemm_nt_contiguous: a group for each 128 rows, and padding at their end."""
    shapes = {t["name"]: t["shape"] for t in plan["tensors"]}
    (rows,), groups, draw, indices = shapes["m_indices"], shapes["b"][0], Draw(plan["seed"], "m_indices"), []
    for block in range(-(-rows // 128)):
        size = min(128, rows - 128 * block)
        padding = int(draw.again(np.array([block]), size)[0])
        indices += [int(draw.below(np.array([block]), groups)[0])] * (size - padding) + [-1] * padding
    return np.array(indices, np.int64)


def scattered_tokens(name, made, plan):
    """ep_scatter: experts of slots as far as there are blocks of 128 rows for them, and the blocks of each."""
    shapes = {t["name"]: t["shape"] for t in plan["tensors"]}
    (tokens, topk), (experts,) = shapes["recv_topk"], shapes["num_recv_tokens_per_expert"]
    left = int(re.search(r"\bM=(\d+)", plan["line"])[1]) // 128
    rows, ids = np.zeros(experts, np.int64), (Draw(plan["seed"], "recv_topk").below(np.arange(tokens * topk), experts + 1) - 1).tolist()
    for slot, expert in enumerate(ids):
        if expert in ids[slot - slot % topk : slot]:
            ids[slot] = expert = -1
        if expert >= 0 and rows[expert] % 128 == 0:
            left -= 1
            if left < 0:
                ids[slot] = expert = -1
        if expert >= 0:
            rows[expert] += 1
    return np.array(ids, np.int64) if name == "recv_topk" else -(-rows // 128) * 128


def ends_of_keys(name, made, plan):
    """fp8_mqa_logits: behind the last key of each query."""
    keys = next(t["shape"] for t in plan["tensors"] if t["name"] == "kv")[0]
    starts = made["cu_seq_len_k_start"].astype(np.int64)
    return starts + 1 + Draw(plan["seed"], name).below(np.arange(len(starts)), np.maximum(keys - starts, 1))


def index_k_pages(name, made, plan):
    """fp8_paged_mqa_logits: pages of 64 keys of codes, then their scales."""
    pages, _, _, key = next(t["shape"] for t in plan["tensors"] if t["name"] == name)
    draw, first = Draw(plan["seed"], name), np.arange(pages * 64 * key, dtype=np.int64).reshape(pages, 64 * key)
    codes = draw.below(first[:, : 64 * (key - 4)].ravel(), 254).reshape(pages, -1)
    scales = (119 + draw.below(first[:, 64 * (key - 4) :: 4].ravel(), 16) << 23).astype(np.uint32)
    return np.concatenate([(codes + (codes >= 127)).astype(np.uint8), scales.view(np.uint8).reshape(pages, -1)], axis=1).ravel()


def shares(draw, maxima, total):
    """Numbers, none above its maximum, that add up to the total as nearly as can be."""
    parts, rest = [], int(sum(maxima))
    for i, most in enumerate(int(m) for m in maxima):
        rest -= most
        high = min(most, total)
        low = min(max(total - rest, 0), high)
        parts.append(low + int(draw.below(np.array([i]), high - low + 1)[0]))
        total -= parts[-1]
    return np.array(parts, np.int64)


def spans_of_requests(name, made, plan):
    """What speculative decoding keeps of slots: lengths that add up."""
    shapes, draw = {t["name"]: t["shape"] for t in plan["tensors"]}, Draw(plan["seed"], name)
    sizes = {k: int(v) for k, v in re.findall(r" (\w+)=(\d+)", plan["line"])}
    requests = sizes["B"]
    rest = max(0, sizes.get("n", 0) - requests)
    emitted = shares(Draw(plan["seed"], "accept_lens"), [rest] * requests, rest) + 1 if "accept_lens" in shapes else 0
    if name in ("seq_lens", "accept_lens"):
        return emitted if name == "accept_lens" else emitted + draw.below(np.arange(requests), 1000)
    if name in ("start_offset", "end_offset"):
        lengths = shares(Draw(plan["seed"], "end_offset"), [sizes["C"]] * requests, sizes["n"])
        starts = Draw(plan["seed"], "start_offset").below(np.arange(requests), sizes["C"] - lengths + 1)
        return starts + lengths if name == "end_offset" else starts
    if name == "to_free_num_slots":
        return shares(draw, [plan["attrs"]["num_verify_tokens"]] * requests, sizes["f"])
    if name == "accept_length_filter":
        return shares(draw, made["accept_length"].astype(np.int64) + 1, sizes["m"])
    return shares(draw, [plan["attrs"]["num_verify_tokens"] - 1 if "num_verify_tokens" in plan["attrs"] else rest] * requests, rest)


# Inputs that are made of other inputs, by op.
KIN = {
    "align_evict_mask_to_page_size": spans_of_requests,
    "assign_req_to_token_pool": spans_of_requests,
    "create_extend_after_decode_spec_info": spans_of_requests,
    "get_target_cache_loc": spans_of_requests,
    "filter_finished_cache_loc_kernel": spans_of_requests,
    "verify_tree_greedy": verified_tree,
    "tree_speculative_sampling_target_only": verified_tree,
    "build_tree_kernel_efficient": candidate_tree,
    "segment_packbits": packed_segments,
    "transfer_kv_per_layer_direct_pf_lf": whole_pages,
    "transfer_kv_all_layer_direct_lf_pf": whole_pages,
    "create_chunked_prefix_cache_kv_indices": prefix_chunks,
    "trtllm_ragged_attention_deepseek": ragged_lengths,
    "flash_mla_with_kvcache": flash_mla_schedule,
    "flash_mla_sparse_decode": sparse_decode,
    "flash_mla_sparse_fwd": sparse_rows,
    "context_attention_fwd": prefill_requests,
    "extend_attention_fwd": extend_masks,
    "fast_topk_v2": starts_of_rows,
    "fp8_mqa_logits": ends_of_keys,
    "fp8_paged_mqa_logits": index_k_pages,
    "fast_topk_transform_fused": starts_of_rows,
    "fast_topk_transform_ragged_fused": starts_of_rows,
    "batch_mla_paged_attention": paged_requests,
    "dequantize_k_cache": k_cache_rows,
    "dequantize_k_cache_paged": k_cache_rows,
    "deepep_low_latency_combine": dispatched_rows,
    "deepep_combine": received_rows,
    "fp8_blockwise_scaled_grouped_mm": grouped_product("expert_offsets", 0, 2),
    "es_fp8_blockwise_scaled_grouped_mm": grouped_product("expert_offsets", 0, 2),
    "m_grouped_fp8_gemm_nt_contiguous": group_blocks,
    "ep_scatter": scattered_tokens,
    "cutlass_w4a8_moe_mm": grouped_product("experts_offsets", 1, 1),
    "fused_moe_kernel": sorted_pairs,
    "cutlass_fp4_group_mm": grouped_fp4_product,
    "scaled_fp4_experts_quant": grouped_fp4_rows,
    "trtllm_fp4_block_scale_moe": moe_factors,
    "trtllm_fp8_block_scale_moe": moe_factors,
    "trtllm_fp8_per_tensor_scale_moe": moe_factors,
    "cutlass_fused_moe": cutlass_moe_factors,
    "qserve_w4a8_per_group_gemm": qserve_scales,
}


def minifloat_table(exponent_bits, mantissa_bits, bias, codes):
    code = np.arange(codes)
    e, m = code >> mantissa_bits & (2**exponent_bits - 1), code & (2**mantissa_bits - 1)
    return np.where(e == 0, m * 2.0 ** (1 - bias - mantissa_bits), (1 + m * 2.0**-mantissa_bits) * 2.0 ** (e - bias))


SMALL = {"f8_e4m3": minifloat_table(4, 3, 7, 127), "f8_e5m2": minifloat_table(5, 2, 15, 124), "f4_e2m1": minifloat_table(2, 1, 1, 8)}


def encode(x, dtype):
    """Numbers to the type's codes: clamped to the finite range, one rounding to nearest even. Bytes are codes as they are."""
    if dtype[0] in "iu" or dtype == "bool" or x.dtype == np.uint8:
        return x.astype(np.int64)
    if np.isnan(x).any():
        return np.where(np.isnan(x), NAN[dtype], encode(np.where(np.isnan(x), 0, x), dtype))
    finite = np.where(np.isinf(x), x, np.clip(x, -LARGEST[dtype], LARGEST[dtype]))
    if dtype == "f64":
        return finite.view(U64)
    if dtype == "f32":
        return finite.astype(np.float32).view(U32)
    if dtype == "f16":
        return finite.astype(np.float16).view(np.uint16)
    if dtype == "bf16":
        # Round to odd in fp32 first, so that the second rounding sees what the first one cut.
        single = finite.astype(np.float32)
        bits = single.view(U32).copy()
        away = np.abs(single.astype(np.float64)) > np.abs(finite)
        bits -= away.astype(U32)
        bits |= (bits.view(np.float32).astype(np.float64) != finite).astype(U32)
        return ((bits.astype(U64) + U64(0x7FFF) + (bits.astype(U64) >> U64(16) & U64(1))) >> U64(16)).astype(np.uint16)
    if dtype == "f8_e8m0":
        return np.clip(np.rint(np.log2(finite)) + 127, 0, 254).astype(np.uint8)
    table = SMALL[dtype]
    if np.isinf(finite).any():  # of f8_e5m2 alone
        return np.where(np.isinf(finite), 0x7C | (finite < 0) << 7, encode(np.where(np.isinf(finite), 0, finite), dtype))
    up = np.clip(np.searchsorted(table, np.abs(finite)), 1, len(table) - 1)
    low, high = np.abs(finite) - table[up - 1], table[up] - np.abs(finite)
    code = np.where((low < high) | ((low == high) & (up % 2 == 1)), up - 1, up)
    return code + np.where(np.signbit(finite), 2 ** (BITS[dtype] - 1), 0)


def packed(codes, dtype):
    if BITS[dtype] == 4:
        codes = np.append(codes & 15, np.zeros(len(codes) % 2, np.int64))
        return (codes[0::2] | codes[1::2] << 4).astype(np.uint8)
    return codes.astype({8: np.uint8, 16: np.uint16, 32: U32, 64: U64}[BITS[dtype]])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case")
    parser.add_argument("-o", "--output", help="write the inputs as raw codes to this npz file")
    options = parser.parse_args()
    with open(options.case, "rb") as file:
        metadata = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))["__metadata__"]
    if "inputs" not in metadata:
        sys.exit(f"{options.case} was not generated: it names no way to make its inputs")
    plan, digests = json.loads(metadata["inputs"]), json.loads(metadata["digests"])
    plan["attrs"], plan["line"] = json.loads(metadata["attrs"]), metadata["line"]
    print(metadata["line"])
    made, wrong = {}, 0
    # What follows from other inputs follows from the whole of them, of which a window is cut at last.
    parts = {t["name"]: part_of(t) for t in plan["tensors"]}
    at_last = any(t.get("kin") or t.get("slots") for t in plan["tensors"])
    for t in sorted(plan["tensors"], key=lambda t: 2 if t.get("slots") else bool(t.get("kin"))):
        shape = [end - begin for begin, end in t["part"]] if t.get("part") else t["shape"]
        if t.get("kin"):
            numbers = KIN[metadata["op"]](t["name"], made, plan)
        else:
            i = np.arange(np.prod(t["shape"], dtype=np.int64)) if at_last else parts[t["name"]]
            alone = t["role"] in ALONE
            if not alone and t.get("special"):
                numbers = struck_ids(t, make(t, plan["dist"], plan["seed"], np.arange(np.prod(t["shape"], dtype=np.int64))), plan["seed"])[i]
            else:
                numbers = struck_numbers(t, make(t, plan["dist"], plan["seed"], i), plan["dist"], plan["seed"], i)
            if t.get("slots"):
                numbers = stale(t, numbers, made, plan["seed"])
        codes = encode(np.asarray(numbers), t["dtype"])
        if at_last and BITS[t["dtype"]] > 4:
            made[t["name"]] = packed(codes, t["dtype"]).reshape(t["shape"])
        data = packed(codes[parts[t["name"]]] if at_last else codes, t["dtype"])
        if not at_last:
            made[t["name"]] = data.reshape(shape) if BITS[t["dtype"]] > 4 else data
        head = f"{t['dtype']} [{', '.join(map(str, shape))}]\n"
        same = hashlib.sha256(head.encode() + data.tobytes()).hexdigest() == digests["in." + t["name"]]
        wrong += not same
        print(f"  {t['name']:<20} {head.strip():<24} {'same bytes' if same else 'DIFFERENT'}")
    if options.output:
        np.savez(options.output, **made)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
