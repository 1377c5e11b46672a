"""TensorRT-LLM's operators in upstream's place, against formulas in torch."""

import math

import pytest

torch = pytest.importorskip("torch")

from dodona import compat

compat.install("trtllm")
T, L = torch.ops.trtllm, torch.ops.tensorrt_llm
E4M3 = torch.float8_e4m3fn


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(5)


def bf16(*shape):
    return torch.randn(*shape).to(torch.bfloat16)


def raw(codes):
    return codes.view(torch.uint8)


def squares(weights):
    """Codes under a scale for 128 x 128 numbers."""
    rows, columns = weights.shape
    whole = torch.zeros(-(-rows // 128) * 128, -(-columns // 128) * 128)
    whole[:rows, :columns] = weights.float()
    parts = whole.view(-1, 128, whole.shape[1] // 128, 128)
    scales = parts.abs().amax((1, 3)).clamp_min(1e-4) / 448
    return (parts / scales[:, None, :, None]).to(E4M3).view_as(whole)[:rows, :columns].contiguous(), scales


def distance(made, wanted):
    """1 - cosine."""
    a, b = made.double().flatten(), wanted.double().flatten()
    return 1 - float(a @ b / (a.norm() * b.norm()))


def test_rows_by_blocks_have_the_reciprocal_of_448_over_the_largest():
    x = bf16(7, 576)
    x[2, 128:256] = 0
    codes, scales = T.fp8_quantize_1x128(x)
    assert codes.dtype == E4M3 and tuple(scales.shape) == (5, 7) and scales.is_contiguous()
    blocks = torch.nn.functional.pad(x.float(), (0, 64)).view(7, 5, 128)
    amax = blocks.abs().amax(-1)
    factor = torch.where(amax > 0, 448 / amax, 1.0)
    assert torch.equal(scales.t(), 1 / factor) and float(scales[1, 2]) == 1.0
    wanted = (blocks * factor[..., None]).to(E4M3).view(7, 640)[:, :576]
    assert torch.equal(raw(codes), raw(wanted.contiguous()))


def test_powers_of_two_round_up_and_lie_in_words_too():
    x = bf16(6, 640) * 3
    x[1, 128:256] = 448 * 0.25  # a power of two as it is
    codes, scales = T.fp8_quantize_1x128(x, True)
    amax = x.float().view(6, 5, 128).abs().amax(-1)
    powers = torch.exp2(torch.ceil(torch.log2((amax / 448).double()))).float()
    assert torch.equal(scales.t(), powers)
    packed, words = T.fp8_quantize_1x128_packed_ue8m0(x)
    assert torch.equal(raw(packed), raw(codes)) and tuple(words.shape) == (6, 2) and words.stride() == (1, 8)
    exponents = words.contiguous().view(torch.uint8)[:, :5].float() - 127
    assert torch.equal(torch.exp2(exponents), powers)


@pytest.mark.parametrize("shape", [(7, 576, 208), (4, 1024, 256), (0, 128, 16)])
def test_products_under_scales_of_blocks(shape):
    rows, inner, columns = shape
    a, b = bf16(rows, inner), bf16(columns, inner)
    x, sx = T.fp8_quantize_1x128(a)
    w, sw = squares(b)
    made = T.fp8_block_scaling_gemm(x, w, sx, sw)
    assert made.dtype == torch.bfloat16 and tuple(made.shape) == (rows, columns)
    spread = sw.repeat_interleave(128, 0).repeat_interleave(128, 1)[:columns, :inner]
    exact = (x.float() * sx.t().repeat_interleave(128, 1)[:, :inner]) @ (w.float() * spread).t()
    torch.testing.assert_close(made.float(), exact, atol=0.03 * math.sqrt(inner) / 16, rtol=0.01)
    # As Hopper's quantizer gives them: rows filled up, in one dimension, with room behind.
    high = -(-rows // 4) * 4
    flat = torch.full((sx.shape[0] * high + 32,), float("nan"))
    flat[: sx.shape[0] * high].view(sx.shape[0], high)[:, :rows] = sx
    assert torch.equal(T.fp8_block_scaling_gemm_impl(x, w, flat, sw), made)
    assert torch.equal(T.cute_dsl_fp8_gemm_blackwell(x, w, sx, sw, use_tvm_ffi=False), made)


def test_products_of_batches_are_written():
    a, b = bf16(5, 3, 256), bf16(3, 128, 256)
    x, sx = T.fp8_batched_quantize_1x128_permute102(a)
    assert tuple(x.shape) == (3, 5, 256) and tuple(sx.shape) == (3, 2, 8) and not sx[:, :, 5:].any()
    parts = [squares(matrix) for matrix in b]
    w, sw = torch.stack([codes for codes, _ in parts]), torch.stack([scales for _, scales in parts])
    out = torch.empty(3, 5, 128, dtype=torch.bfloat16)
    given = T.fp8_block_scaling_bmm_out(x, w, sx, sw, out)
    assert given.data_ptr() == out.data_ptr() and distance(out, torch.einsum("mgk,gnk->gmn", a.float(), b.float())) < 1e-3
    for at in range(3):
        assert torch.equal(out[at], T.fp8_block_scaling_gemm(x[at], w[at], sx[at][:, :5].contiguous(), sw[at]))
    assert torch.equal(T.fp8_block_scaling_bmm(x, w, sx, sw), out)


def test_rows_in_bf16_are_quantized_under_powers_of_two():
    a, b = bf16(9, 256), bf16(64, 256)
    w, sw = squares(b)
    sw = torch.exp2(torch.ceil(torch.log2(sw)))
    w = (b.float() / sw.repeat_interleave(128, 0).repeat_interleave(128, 1)[:64]).to(E4M3)
    x, sx = T.fp8_quantize_1x128(a, True)
    assert torch.equal(T.fp8_swap_ab_gemm(a, w, sw), T.fp8_block_scaling_gemm(x, w, sx, sw))


def fp4(values, scale, *layout):
    return T.fp4_quantize(values.half(), scale, 16, False, *layout)


def test_products_of_four_bits_are_those_of_the_numbers():
    a, b = torch.randn(40, 256), torch.randn(64, 256)
    ga, gb = (448 * 6) / a.abs().max(), (448 * 6) / b.abs().max()
    (x, sx), (w, sw) = fp4(a, ga), fp4(b, gb)
    assert x.dtype == sx.dtype == torch.uint8 and tuple(sx.shape) == (128 * 16,)
    number = lambda codes, scales, scale: L.e2m1_and_ufp8sf_scale_to_float_v2(codes, scales, 1 / scale, 16, 1, True)
    assert (number(x, sx, ga) - a).abs().max() < 1
    factor = (1 / (ga * gb)).reshape(1)
    wanted = number(x, sx, ga) @ number(w, sw, gb).t()
    for kind in (None, torch.bfloat16, torch.float32):
        made = T.fp4_gemm(x, w, sx, sw, factor, 0, kind)
        assert made.dtype == (kind or torch.float16)
        torch.testing.assert_close(made.float(), wanted, atol=0.1, rtol=0.01)
    assert torch.equal(T.nvfp4_gemm(x, w, sx, sw, factor, torch.float32), T.fp4_gemm(x, w, sx, sw, factor, 0, torch.float32))
    batch = T.fp4_bmm(torch.stack([x, x]), torch.stack([w, w]), torch.stack([sx, sx]), torch.stack([sw, sw]), factor, 0)
    assert torch.equal(batch[1], T.fp4_gemm(x, w, sx, sw, factor, 0))


def test_rows_may_have_global_scales_of_their_own():
    a = torch.randn(7, 64)
    each = (448 * 6) / a.abs().amax(-1)
    codes, scales = fp4(a, each)
    for row in range(7):
        alone, of_row = fp4(a[row : row + 1], each[row : row + 1], False)
        assert torch.equal(codes[row : row + 1], alone)
        assert torch.equal(T.block_scale_interleave_reverse(scales.view(128, 4))[row], of_row)
    _, linear = fp4(a, each, False)
    assert torch.equal(T.block_scale_interleave(linear.view(7, 4)), scales)
    with pytest.raises(RuntimeError, match="globalScale"):
        fp4(a, each[:3])


def test_flashinfer_quantizes_rows_under_scales_of_their_own_too():
    from dodona.compat import flashinfer

    a = bf16(5, 96)
    each = torch.rand(5) * 100 + 1
    codes, scales = flashinfer.fp4_quantize(a, each)
    assert tuple(scales.shape) == (128, 8)
    for row in range(5):
        alone, of_row = flashinfer.fp4_quantize(a[row : row + 1], each[row : row + 1], is_sf_swizzled_layout=False)
        assert torch.equal(codes[row], alone[0])
        assert torch.equal(T.block_scale_interleave_reverse(scales.contiguous())[row, :6], of_row.flatten())


def test_exponents_under_eight_and_four_bits():
    a, b = bf16(10, 128), bf16(32, 128)
    x, sx = T.mxfp8_quantize(a, True, 64)
    w, sw = T.mxfp8_quantize(b)
    number = lambda codes, scales: L.dequantize_mxe4m3_host(raw(codes), scales, True)
    one = torch.ones(1)
    torch.testing.assert_close(T.mxfp8_mxfp8_gemm(x, sx, w, sw, one, torch.float32), number(x, sx) @ number(w, sw).t(), atol=1e-3, rtol=1e-4)
    w4, s4 = T.fp4_quantize(b, None, 32, True)
    numbers = L.e2m1_and_ufp8sf_scale_to_float_v2(w4, s4, None, 32, 0, True)
    torch.testing.assert_close(T.fp4_gemm(x, w4, sx, s4, one * 2, 1, torch.float32), 2 * number(x, sx) @ numbers.t(), atol=1e-3, rtol=1e-4)


def test_one_scale_for_a_tensor_or_a_row():
    x = bf16(4, 32)
    codes, scale = L.quantize_e4m3_per_tensor(x)
    assert tuple(scale.shape) == (1, 1) and scale.dtype == torch.bfloat16 and scale == (x.float().abs().max() / 448).to(torch.bfloat16)
    assert torch.equal(raw(codes), raw((x.float() / scale.float()).to(E4M3)))
    rows, scales = L.quantize_e4m3_activation(x)
    assert torch.equal(scales.float(), (x.float().abs().amax(-1, keepdim=True) / 448).to(torch.bfloat16).float())
    again, same = L.static_quantize_e4m3_per_tensor(x, scale)
    assert torch.equal(raw(again), raw(codes)) and torch.equal(same, scale)
    assert torch.equal(T.calculate_nvfp4_global_scale(x, None), 2688 / x.float().abs().amax(-1, keepdim=True))


@pytest.mark.parametrize("name, inner, columns, kind", [
    ("dsv3_router_gemm_op", 7168, 256, torch.float32), ("dsv3_router_gemm_op", 512, 64, torch.float32), ("dsv3_fused_a_gemm_op", 7168, 2112, torch.bfloat16),
    ("dsv3_fused_a_gemm_op", 256, 48, torch.bfloat16), ("cublas_mm", 256, 48, torch.float32), ("cublas_mm", 256, 48, None),
])  # fmt: skip
def test_sixteen_bits(name, inner, columns, kind):
    a, w = bf16(3, inner), bf16(columns, inner)
    made = getattr(T, name)(a, w.t(), None, kind)
    assert made.dtype == (kind or torch.bfloat16)
    torch.testing.assert_close(made.float(), a.float() @ w.float().t(), atol=0.05, rtol=0.02)
    with pytest.raises(RuntimeError, match="bias"):
        getattr(T, name)(a, w.t(), torch.zeros(columns), kind)
    with pytest.raises(RuntimeError, match="strides"):
        getattr(T, name)(a, w.t().contiguous(), None, kind)


def test_whole_tensors_scales():
    a, w = torch.rand(16, 64).to(E4M3), torch.rand(32, 64).to(E4M3)
    sa, sw = torch.tensor([0.5]), torch.tensor([3.0])
    for kind in (torch.float16, torch.bfloat16, torch.float32):
        made = T.cublas_scaled_mm(a, w.t(), sa, sw, bias=None, out_dtype=kind)
        assert made.dtype == kind
        torch.testing.assert_close(made.float(), 1.5 * a.float() @ w.float().t(), atol=0.02, rtol=0.02)


@pytest.mark.parametrize("experts, groups, kept, topk", [(256, 8, 4, 8), (72, 1, 1, 6), (128, 16, 7, 9)])
def test_routes_by_groups(experts, groups, kept, topk):
    logits, bias = torch.randn(9, experts), torch.randn(experts)
    weights, ids = T.noaux_tc_op(logits, bias, groups, kept, topk, 2.5)
    scores = torch.sigmoid(logits)
    choice = (scores + bias).view(9, groups, -1)
    best = choice.topk(min(2, choice.shape[2]), -1).values.sum(-1).topk(kept, -1).indices
    there = torch.zeros(9, groups, dtype=torch.bool).scatter_(1, best, True)
    wanted = torch.where(there[..., None], choice, -torch.inf).view(9, -1).topk(topk, -1).indices
    assert ids.dtype == torch.int32 and torch.equal(ids.long().sort(-1).values, wanted.sort(-1).values)
    chosen = scores.gather(1, ids.long())
    torch.testing.assert_close(weights, 2.5 * chosen / chosen.sum(-1, keepdim=True), atol=1e-6, rtol=1e-5)
    assert T.noaux_tc_op(logits.half(), bias, groups, kept, topk, 1.0)[0].dtype == torch.float16
    with pytest.raises(RuntimeError, match="n_group"):
        T.noaux_tc_op(logits, bias, 33, 1, topk, 1.0)


def test_routes_by_softmax():
    logits = torch.randn(6, 64)
    ids, values = T.renorm_moe_routing_op(logits, 4)
    top = logits.topk(4, -1)
    assert torch.equal(ids.long(), top.indices)
    torch.testing.assert_close(values, torch.softmax(top.values, -1))
    ids, values = T.default_moe_routing_op(logits, 4, torch.bfloat16)
    torch.testing.assert_close(values, torch.softmax(logits, -1).topk(4, -1).values.to(torch.bfloat16))


def test_the_indexers_largest():
    logits = torch.randn(3, 40)
    indices = torch.full((3, 8), 7, dtype=torch.int32)
    begins, ends = torch.tensor([0, 5, 10], dtype=torch.int32), torch.tensor([4, 30, 40], dtype=torch.int32)
    T.indexer_topk_prefill(logits, begins, ends, indices, 8)
    assert indices[0].tolist() == [0, 1, 2, 3, -1, -1, -1, -1]
    for row in (1, 2):
        assert set(indices[row].tolist()) == set(logits[row, begins[row] : ends[row]].topk(8).indices.tolist())
    logits[:2, 18:21] = 9.0  # where lengths end
    T.indexer_topk_decode(logits[:2], torch.tensor([20], dtype=torch.int32), indices[:2], 2, 8)
    for row, length in ((0, 19), (1, 20)):
        assert set(indices[row].tolist()) == set(logits[row, :length].topk(8).indices.tolist())
    with pytest.raises(RuntimeError, match="logits"):
        T.indexer_topk_prefill(logits, begins, ends + 1, indices, 8)


def test_rows_of_experts_go_into_whole_tiles_and_back():
    ids = torch.tensor([[0, 3], [3, 1], [2, 3]], dtype=torch.int32)
    tiles, limits, at, expanded, total, used = T.moe_sort(ids, torch.ones(3, 2), 4, 2, 1, 3, 2)
    assert at.tolist() == [[-1, 4], [5, 0], [2, 6]] and total.item() == 8 and used.item() == 4
    assert tiles[:4].tolist() == [0, 1, 2, 2] and limits[:4].tolist() == [1, 3, 6, 7]
    assert expanded[:8].tolist() == [3, -1, 4, -1, 1, 2, 5, -1]
    rows, scales = torch.randn(len(expanded), 16).half(), torch.rand(3, 2)
    made = T.moe_unpermute(rows, at, scales)
    wanted = torch.stack([sum((scales[t, k] * rows[at[t, k]].float() for k in range(2) if at[t, k] >= 0), torch.zeros(16)) for t in range(3)])
    torch.testing.assert_close(made.float(), wanted, atol=2e-3, rtol=2e-3)


def test_mixtures_of_experts_are_flashinfers():
    from dodona.compat import flashinfer

    tokens, hidden, inner, experts = 5, 256, 128, 8
    x, sx = T.fp8_quantize_1x128(bf16(tokens, hidden))
    parts = [[squares(bf16(rows, columns)) for _ in range(experts)] for rows, columns in ((2 * inner, hidden), (hidden, inner))]
    (w1, s1), (w2, s2) = ((torch.stack([codes for codes, _ in part]), torch.stack([scales for _, scales in part])) for part in parts)
    logits, bias = torch.randn(tokens, experts), torch.randn(experts).to(torch.bfloat16)
    rest = (experts, 2, 2, 1, inner, 0, experts, 1.5)
    made = T.fp8_block_scale_moe_runner(logits, bias, x, sx, w1, s1, w2, s2, *rest, 2)
    wanted = flashinfer.trtllm_fp8_block_scale_moe(logits, bias, x, sx, w1, s1, w2, s2, *rest, routing_method_type=2)
    assert torch.equal(made, wanted[0] if isinstance(wanted, (list, tuple)) else wanted)


@pytest.mark.parametrize("call", [
    lambda: T.fp8_quantize_1x128(torch.randn(4, 128)),
    lambda: T.fp8_quantize_1x128(bf16(4, 20)),
    lambda: T.fp8_quantize_1x128(bf16(128, 4).t()),
    lambda: T.fp8_block_scaling_gemm(bf16(4, 128).to(E4M3), bf16(16, 144).to(E4M3), torch.ones(1, 4), torch.ones(1, 2)),
    lambda: T.fp8_block_scaling_gemm(bf16(4, 128).to(E4M3), bf16(16, 128).to(E4M3), torch.ones(4, 4), torch.ones(1, 1)),
    lambda: T.fp4_quantize(bf16(4, 24), torch.ones(1), 16),
    lambda: T.fp4_quantize(bf16(4, 32), None, 16),
    lambda: T.fp4_quantize(bf16(32), torch.ones(1), 16),
    lambda: T.calculate_nvfp4_global_scale(bf16(4096), None),
    lambda: T.calculate_nvfp4_global_scale(bf16(4, 3, 32), torch.ones(5, dtype=torch.int32)),
    lambda: T.moe_unpermute(bf16(4, 16), torch.full((2, 2), 9, dtype=torch.int32), torch.ones(2, 2)),
    lambda: L.quantize_e4m3_per_tensor(torch.empty(0, 4)),
])  # fmt: skip
def test_refusals_are_upstreams(call):
    with pytest.raises(RuntimeError) as refused:
        call()
    assert isinstance(refused.value, compat.Refused) and ":" in str(refused.value)


def test_gradients_do_not_stop_a_call():
    x = bf16(4, 128).requires_grad_()
    assert torch.equal(raw(T.fp8_quantize_1x128(x)[0].detach()), raw(T.fp8_quantize_1x128(x.detach())[0]))
