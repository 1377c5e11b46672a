"""vLLM's operators around DeepSeek's experts, indexer and caches of codes, torch.ops included, against formulas in torch."""

import pytest

torch = pytest.importorskip("torch")

from dodona import compat
from dodona.compat import vllm, vllm_operators  # noqa: F401  makes the modules
from dodona.compat.vllm import _custom_ops as ops

vllm_operators.define()
C, M, K = torch.ops._C, torch.ops._moe_C, torch.ops._C_cache_ops
E4M3 = torch.float8_e4m3fn


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(9)


def bf16(*shape):
    return torch.randn(*shape).to(torch.bfloat16)


def raw(codes):
    return codes.view(torch.uint8)


# ---- experts ----


def test_a_map_leaves_the_experts_of_other_ranks_out():
    ids = torch.tensor([[0, 3], [2, 1], [-1, 2], [3, 2]], dtype=torch.int32)
    own = torch.tensor([-1, 0, 1, -1], dtype=torch.int32)
    room = lambda size: torch.full((size,), 99, dtype=torch.int32)
    rows, blocks, total = room(16), room(4), room(1)
    ops.moe_align_block_size(ids, 4, 4, rows, blocks, total, own)
    assert total.item() == 8 and blocks.tolist() == [0, 1, -1, -1]
    assert rows[:8].tolist() == [3, 8, 8, 8, 2, 5, 7, 8] and (rows[8:] == 8).all()
    again = room(16), room(4), room(1)
    M.moe_align_block_size(ids, 4, 4, *again, own)
    assert all(torch.equal(a, b) for a, b in zip(again, (rows, blocks, total)))
    with pytest.raises(compat.Refused, match="expert_map"):
        ops.moe_align_block_size(ids, 4, 4, rows, blocks, total, own[:3])


def test_blocks_of_batches():
    counts = torch.tensor([3, 0, 5], dtype=torch.int32)
    rows, blocks, total = (torch.zeros(size, dtype=torch.int32) for size in (24, 6, 1))
    ops.batched_moe_align_block_size(6, 4, counts, rows, blocks, total)
    assert total.item() == 12 and blocks.tolist() == [0, 2, 2, -1, -1, -1]
    assert rows[:12].tolist() == [0, 1, 2, 18, 12, 13, 14, 15, 16, 18, 18, 18] and (rows[12:] == 18).all()
    with pytest.raises(compat.Refused, match="expert_num_tokens"):
        ops.batched_moe_align_block_size(4, 4, counts, rows, blocks, total)


@pytest.mark.parametrize("mapped", [False, True])
def test_rows_are_permuted_and_summed_again(mapped):
    x, ids, weights = bf16(5, 8), torch.tensor([[0, 3], [2, 1], [1, 2], [3, 2], [0, 1]], dtype=torch.int32), torch.rand(5, 2)
    own = torch.tensor([-1, 0, 1, -1], dtype=torch.int32) if mapped else None
    local = 2 if mapped else 4
    rows, ends = torch.zeros(10, 8, dtype=torch.bfloat16), torch.zeros(local + 1, dtype=torch.int64)
    inverse, places = torch.zeros(5, 2, dtype=torch.int32), torch.full((10,), 10, dtype=torch.int32)
    M.moe_permute(x, ids, torch.arange(10, dtype=torch.int32).view(5, 2), own, 4, local, 2, rows, ends, inverse, places)
    flat = ids.flatten().tolist()
    order = [i for expert in ((1, 2) if mapped else range(4)) for i in range(10) if flat[i] == expert]
    assert places.tolist()[: len(order)] == order and ends[-1].item() == len(order)
    assert torch.equal(rows[: len(order)], x[torch.tensor(order) // 2])
    # Other ranks' choices lie behind, by expert.
    whole = order + [i for expert in ((0, 3) if mapped else ()) for i in range(10) if flat[i] == expert]
    assert inverse.flatten()[torch.tensor(whole)].tolist() == list(range(10))
    again = [torch.zeros_like(value) for value in (rows, ends, inverse)] + [torch.full((10,), 10, dtype=torch.int32)]
    work = torch.empty(M.moe_permute_sort_workspace_size(10, 4), dtype=torch.int8)
    kept = [torch.full((5, 2), -7, dtype=torch.int32) for _ in range(3)]
    M.moe_permute_with_scratch(x, ids, torch.arange(10, dtype=torch.int32).view(5, 2), own, 4, local, 2, *again, work, *kept)
    assert all(torch.equal(a, b) for a, b in zip(again, (rows, ends, inverse, places)))
    keys = [expert - 1 if expert in (1, 2) else 4 + expert for expert in flat] if mapped else flat
    assert kept[1].flatten().tolist() == whole and kept[0].flatten().tolist() == sorted(keys)
    assert kept[2].flatten().tolist() == (keys if mapped else [-7] * 10)
    with pytest.raises(compat.Refused, match="sorted_row_idx"):
        M.moe_permute_with_scratch(x, ids, torch.arange(10, dtype=torch.int32).view(5, 2), own, 4, local, 2, *again, work, kept[0], kept[1][:4], kept[2])
    rows[len(order) :] = 100.0
    out = torch.zeros(5, 8, dtype=torch.bfloat16)
    M.moe_unpermute(rows, weights, inverse.flatten(), ends, 2, out)
    there = torch.tensor([[flat[2 * t + k] in ((1, 2) if mapped else range(4)) for k in range(2)] for t in range(5)])
    torch.testing.assert_close(out.float(), (weights * there).sum(1, keepdim=True) * x.float(), atol=0.02, rtol=0.02)


@pytest.mark.parametrize("hashed", [False, True])
def test_square_roots_of_softplus(hashed):
    logits, bias = torch.randn(6, 32), torch.randn(32)
    logits[4] = float("nan")
    padding = torch.tensor([False, True, False, False, False, False])
    table, words = torch.stack([torch.randperm(32)[:4] for _ in range(7)]).int(), torch.randint(0, 7, (6,), dtype=torch.int32)
    weights, ids, places = torch.zeros(6, 4), torch.zeros(6, 4, dtype=torch.int32), torch.zeros(6, 4, dtype=torch.int32)
    more = {"input_tokens": words, "hash_indices_table": table} if hashed else {"e_score_correction_bias": bias}
    ops.topk_hash_softplus_sqrt(weights, ids, places, logits, True, 1.5, is_padding=padding, **more)
    scores = torch.nn.functional.softplus(logits).sqrt()
    wanted = table[words.long()].long() if hashed else (scores + bias).topk(4, -1).indices
    kept = [0, 2, 3, 5]
    assert torch.equal(ids[kept].long(), wanted[kept]) and ids[1].tolist() == [-1] * 4 and not weights[1].any() and weights[4].isfinite().all()
    chosen = scores.gather(1, wanted)
    torch.testing.assert_close(weights[kept], (1.5 * chosen / chosen.sum(-1, keepdim=True))[kept])
    assert places.tolist() == [[k * 6 + t for k in range(4)] for t in range(6)]


# ---- the indexer ----


def test_the_largest_of_rows():
    logits = torch.randn(4, 50)
    indices = torch.zeros(4, 6, dtype=torch.int32)
    begins, ends = torch.tensor([0, 3, 10, 0]).int(), torch.tensor([50, 40, 14, 0]).int()
    C.top_k_per_row_prefill(logits, begins, ends, indices, 4, 50, 1, 6)
    for row in (0, 1):
        assert set(indices[row].tolist()) == set(logits[row, begins[row] : ends[row]].topk(6).indices.tolist())
    assert indices[2].tolist() == [0, 1, 2, 3, -1, -1] and (indices[3] == -1).all()
    for row, length in enumerate((49, 50, 19, 20)):
        logits[row, length - 1 : length + 1] = 9.0  # where lengths end
    C.top_k_per_row_decode(logits, 2, torch.tensor([50, 20]).int(), indices, 4, 50, 1, 6)
    for row, length in enumerate((49, 50, 19, 20)):
        assert set(indices[row].tolist()) == set(logits[row, :length].topk(6).indices.tolist())
    other = torch.zeros_like(indices)
    C.persistent_topk(logits, torch.tensor([49, 50, 19, 20]).int(), other, torch.empty(1), 6, 50)
    assert torch.equal(other, indices)
    with pytest.raises(compat.Refused, match="indices"):
        ops.top_k_per_row_prefill(logits, begins, ends, indices[:, :5].contiguous(), 4, 50, 1, 6)


@pytest.mark.parametrize("kind", ["ue8m0", "auto"])
def test_the_indexers_keys_are_stored_and_gathered(kind):
    keys, slots = bf16(9, 128).clamp(-3.4, 3.4), torch.tensor([3, 0, -1, 17, 18, 5, 12, 30, 1])
    keys[3, 5] = -3.5  # 448 / 128, a power of two as it is
    whole = torch.zeros(4, 2, 8, 132, dtype=torch.uint8)
    cache = whole[:, 1]  # pages of one layer of two
    ops.indexer_k_quant_and_cache(keys, cache, slots, 128, kind)
    amax = keys.float().abs().amax(-1).clamp_min(1e-4)
    scales = amax / 448
    if kind == "ue8m0":
        scales = torch.exp2(torch.ceil(torch.log2(scales.double()))).float()
    codes = (keys.float() / scales[:, None]).to(E4M3)
    for token, slot in enumerate(slots.tolist()):
        if slot < 0:
            continue
        page = cache[slot // 8].reshape(-1)
        assert torch.equal(page[slot % 8 * 128 : slot % 8 * 128 + 128], raw(codes[token]))
        assert torch.equal(page[8 * 128 + slot % 8 * 4 :][:4].clone().view(torch.float32), scales[token : token + 1])
    assert not whole[:, 0].any()
    table, ends = torch.tensor([[2, 0], [3, 1]]).int(), torch.tensor([0, 3, 10]).int()
    rows, found = torch.zeros(10, 128, dtype=E4M3), torch.zeros(10, 4, dtype=torch.uint8)
    ops.cp_gather_indexer_k_quant_cache(cache, rows, found, table, ends)
    assert torch.equal(raw(rows)[1], raw(codes[3])) and torch.equal(found[1].view(torch.float32), scales[3:4])  # token 1 of page 2 is slot 17
    assert torch.equal(raw(rows)[3 + 6], raw(codes[7]))  # token 6 of page 3 is slot 30
    with pytest.raises(compat.Refused, match="block_table"):
        ops.cp_gather_indexer_k_quant_cache(cache, rows, found, table + 3, ends)


def test_rows_of_656_bytes_are_widened():
    cache = torch.zeros(5, 4, 656, dtype=torch.uint8)
    codes, scales, rope = torch.randn(5, 4, 512).to(E4M3), torch.rand(5, 4, 4) + 0.1, bf16(5, 4, 64)
    cache[..., :512], cache[..., 512:528], cache[..., 528:] = raw(codes), raw(scales), raw(rope)
    out = torch.zeros(9, 576, dtype=torch.bfloat16)
    table, begins, starts = torch.tensor([[4, 1, 0], [2, 3, 0]]).int(), torch.tensor([0, 4]).int(), torch.tensor([2, 0]).int()
    ops.cp_gather_and_upconvert_fp8_kv_cache(cache, out, table, begins, 2, starts)
    places = [(4, 2), (4, 3), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2), (2, 3), (3, 0)]
    for row, (page, at) in enumerate(places):
        wide = (codes[page, at].float().view(4, 128) * scales[page, at][:, None]).flatten().to(torch.bfloat16)
        assert torch.equal(out[row, :512], wide) and torch.equal(out[row, 512:], rope[page, at])
    with pytest.raises(compat.Refused, match="block_table"):
        ops.cp_gather_and_upconvert_fp8_kv_cache(cache, out, table, begins, 2, starts + 9)


def test_latent_rows_are_rotated_on_their_way():
    q, k, c = bf16(5, 3, 64), bf16(5, 64), bf16(5, 512)
    table, positions = torch.randn(20, 64).to(torch.bfloat16), torch.randint(0, 20, (5,))
    wanted = q.clone().view(5, -1), k.clone()
    ops.rotary_embedding(positions, *wanted, 64, table, True)
    cache, slots = torch.zeros(4, 4, 576, dtype=torch.bfloat16), torch.tensor([3, 9, 0, -1, 15])
    ops.concat_and_cache_mla_rope_fused(positions, q, k, c, table, True, slots, cache, "auto", torch.ones(1))
    assert torch.equal(q.view(5, -1), wanted[0]) and torch.equal(k, wanted[1])
    for token in (0, 1, 2, 4):
        assert torch.equal(cache.view(16, 576)[slots[token]], torch.cat([c[token], wanted[1][token]]))


# ---- what quantizes what a norm or a gate gives ----


def quantized(wide, size, least=1 / (448 * 512)):
    parts = wide.float().unflatten(-1, (-1, size))
    scales = (parts.abs().amax(-1) / 448).clamp_min(least)
    return (parts / scales[..., None]).flatten(-2).to(E4M3), scales


@pytest.mark.parametrize("turned", [False, True])
def test_gates_are_quantized_by_groups(turned):
    x = bf16(3, 256)
    codes, scales = ops.silu_and_mul_per_block_quant(x, 64, E4M3, None, turned)
    gate = torch.empty(3, 128, dtype=torch.bfloat16)
    C.silu_and_mul(gate, x)
    wanted, of_groups = quantized(gate, 64)
    assert torch.equal(raw(codes), raw(wanted)) and torch.equal(scales, of_groups) and scales.stride() == ((1, 3) if turned else (2, 1))
    out, room = torch.zeros(3, 128, dtype=E4M3), torch.zeros(2, 3) if turned else torch.zeros(3, 2)
    C.silu_and_mul_per_block_quant(out, x, room, 64, None, turned)
    assert torch.equal(raw(out), raw(codes)) and torch.equal(room.t() if turned else room, scales)


@pytest.mark.parametrize("added", [False, True])
def test_norms_are_quantized(added):
    x, weight, residual = bf16(4, 128), bf16(128), bf16(4, 128)
    normed, total = x.clone(), residual.clone()
    if added:
        ops.fused_add_rms_norm(normed, total, weight, 1e-6)
    else:
        ops.rms_norm(normed, x, weight, 1e-6)
    rest = residual.clone()
    given = lambda: rest.copy_(residual) if added else None
    codes, scales = ops.rms_norm_dynamic_per_token_quant(x, weight, 1e-6, E4M3, None, given())
    wanted, of_rows = quantized(normed, 128)
    assert torch.equal(raw(codes), raw(wanted)) and torch.equal(scales, of_rows) and torch.equal(rest, total if added else residual)
    codes, scales = ops.rms_norm_per_block_quant(x, weight, 1e-6, E4M3, [1, 64], None, given(), True, 4)
    wanted, of_groups = quantized(normed, 64)
    assert torch.equal(raw(codes), raw(wanted)) and torch.equal(scales, of_groups) and scales.stride() == (1, 4)
    out, one = torch.zeros(4, 128, dtype=E4M3), torch.tensor([0.25])
    if added:
        C.fused_add_rms_norm_static_fp8_quant(out, x, given(), weight, one, 1e-6)
        assert torch.equal(rest, total)
    else:
        C.rms_norm_static_fp8_quant(out, x, weight, one, 1e-6)
    assert torch.equal(raw(out), raw((normed.float() / 0.25).clamp(-448, 448).to(E4M3)))


def test_exponents_lie_in_words_columns_first():
    x = bf16(3, 640)
    codes, words = torch.full((4, 640), 1.0).to(E4M3), torch.empty_strided((3, 2), (1, 4), dtype=torch.int32)
    torch.as_strided(words, (7,), (1,)).fill_(0x7F7F7F7F)
    C.per_token_group_fp8_quant_packed(x, codes, words, 128, 1e-10, -448.0, 448.0)
    scales = torch.exp2(torch.ceil(torch.log2((x.float().view(3, 5, 128).abs().amax(-1) / 448).double()))).float()
    assert torch.equal(raw(codes[:3]), raw((x.float() / scales.repeat_interleave(128, 1)).to(E4M3))) and not raw(codes[3:]).any()
    exponents = torch.nn.functional.pad(scales.view(torch.int32) >> 23, (0, 3)).to(torch.uint8)
    assert torch.equal(words.contiguous().view(torch.uint8), exponents) and torch.as_strided(words, (7,), (1,))[3] == 0
    C.per_token_group_fp8_quant_packed(torch.zeros_like(x), codes, words, 128, 1e-10, -448.0, 448.0)
    assert (words.contiguous().view(torch.uint8)[:, :5] == 0x5E).all()  # the power of two above 1e-10


@pytest.mark.parametrize("alpha, beta", [(1.0, 0.0), (1.7, 1.0)])
def test_gates_with_a_limit(alpha, beta):
    x, out = bf16(3, 64) * 4, torch.zeros(3, 32, dtype=torch.bfloat16)
    C.silu_and_mul_with_clamp(out, x, 2.0, alpha, beta)
    gate, up = x[:, :32].float().clamp(max=2), x[:, 32:].float().clamp(-2, 2)
    torch.testing.assert_close(out.float(), gate * torch.sigmoid(alpha * gate) * (up + beta), atol=1e-6, rtol=2**-8)


def test_four_bits_with_zeros_behind_and_scales_of_rows():
    x, scale = bf16(5, 48), torch.tensor([20.0])
    longer = torch.nn.functional.pad(x, (0, 16))
    codes, tiles = ops.scaled_fp4_quant(longer, scale)
    assert all(torch.equal(raw(a), raw(b)) for a, b in zip(ops.scaled_fp4_quant(x, scale, padded_n=64), (codes, tiles)))
    alone, of_rows = ops.scaled_fp4_quant(x, scale, is_sf_swizzled_layout=False)
    assert torch.equal(alone, codes[:, :24]) and tuple(of_rows.shape) == (5, 3) and of_rows.dtype == E4M3
    for row in range(5):  # of the first tile, the first 32 rows lie 16 bytes apart
        assert torch.equal(raw(of_rows)[row], raw(tiles).flatten()[row * 16 : row * 16 + 3])
    made, words = C.scaled_fp4_quant(x, scale, True)
    for swizzled in (True, False):
        for given, taken in zip(C.scaled_fp4_quant(x, scale, swizzled), ops.create_fp4_output_tensors(*x.shape, x.device, swizzled)):
            assert given.shape == taken.shape and given.dtype == taken.dtype
    padded, zeros = ops.create_fp4_output_tensors(*x.shape, x.device, True, padded_n=256)
    assert padded.shape == (len(x), 128) and zeros.shape == (128, 4) and not zeros.any()
    assert words.dtype == torch.int32 and tuple(words.shape) == (128, 1) and torch.equal(made, alone)
    out, room = torch.ones(5, 32, dtype=torch.uint8), torch.ones(128, 1, dtype=torch.int32)
    C.scaled_fp4_quant.out(x, scale, True, output=out, output_scale=room)
    assert torch.equal(out, codes) and torch.equal(raw(room), raw(tiles))
    for wrong in ({"padded_n": 40}, {"padded_n": 32}, {"backend": "trtllm"}):
        with pytest.raises(compat.Refused, match=next(iter(wrong))):
            ops.scaled_fp4_quant(x, scale, **wrong)


I32 = {"dtype": torch.int32}


@pytest.mark.parametrize("argument, call", [
    ("topk_ids", lambda: M.moe_permute(bf16(5, 8), torch.zeros(5, 3, **I32), torch.zeros(5, 2, **I32), None, 4, 4, 2, bf16(10, 8), torch.zeros(5, dtype=torch.int64), torch.zeros(5, 2, **I32), torch.zeros(10, **I32))),
    ("expert_map", lambda: M.moe_permute(bf16(5, 8), torch.zeros(5, 2, **I32), torch.zeros(5, 2, **I32), torch.zeros(3, **I32), 4, 4, 2, bf16(10, 8), torch.zeros(5, dtype=torch.int64), torch.zeros(5, 2, **I32), torch.zeros(10, **I32))),
    ("hidden_states", lambda: M.moe_unpermute(bf16(10, 8), torch.rand(5, 2), torch.zeros(10, **I32), None, 2, bf16(5, 7))),
    ("expert_first_token_offset", lambda: M.moe_unpermute(bf16(10, 8), torch.rand(5, 2), torch.zeros(10, **I32), torch.tensor([0, 11]), 2, bf16(5, 8))),
    ("topk_ids", lambda: M.topk_softplus_sqrt(torch.zeros(3, 4), torch.zeros(3, 4), torch.zeros(3, 4, **I32), torch.randn(3, 32), True, 1.0)),
    ("result", lambda: C.rms_norm_dynamic_per_token_quant(torch.zeros(2, 128).to(E4M3), bf16(3, 128), bf16(128), torch.zeros(3, 1), 1e-6, None, None)),
    ("scales", lambda: C.rms_norm_per_block_quant(torch.zeros(3, 128).to(E4M3), bf16(3, 128), bf16(128), torch.zeros(3, 1), 1e-6, None, None, 64, False)),
    ("result", lambda: C.silu_and_mul_quant(torch.zeros(3, 64), bf16(3, 128), torch.ones(1))),
    ("input", lambda: C.silu_and_mul_with_clamp(bf16(3, 16), bf16(3, 33), 2.0)),
    ("output_q", lambda: C.per_token_group_fp8_quant_packed(bf16(3, 128), bf16(3, 128), torch.empty_strided((3, 1), (1, 4), **I32), 128, 1e-10, -448.0, 448.0)),
    ("kv_cache", lambda: K.indexer_k_quant_and_cache(bf16(3, 128), torch.zeros(2, 8, 130, dtype=torch.uint8), torch.zeros(3, dtype=torch.int64), 128, "ue8m0")),
    ("slot_mapping", lambda: K.indexer_k_quant_and_cache(bf16(3, 128), torch.zeros(2, 8, 132, dtype=torch.uint8), torch.tensor([0, 1, 16]), 128, "ue8m0")),
])  # fmt: skip
def test_operators_refuse_as_upstream_does(argument, call):
    with pytest.raises(RuntimeError, match=argument) as refused:
        call()
    assert isinstance(refused.value, compat.Refused)
