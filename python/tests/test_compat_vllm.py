"""vLLM's custom operators in upstream's place, against formulas in NumPy."""

import numpy as np
import pytest

import dodona
from dodona import as_dtype, compat
from dodona.compat import vllm  # noqa: F401  makes the modules
from dodona.compat.vllm import _custom_ops as ops
from dodona.compat.vllm.model_executor.layers.quantization.utils import fp8_utils

RANDOM = np.random.default_rng(11)
BOTH = pytest.mark.parametrize("mode", [None, "golden"])


def rounded(values):
    """bf16 codes, to the even one where two are as near."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return (bits + 0x7FFF + (bits >> 16 & 1) >> 16).astype(np.uint16)


def numbers(codes):
    return (np.asarray(codes).view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def bf16(*shape):
    return rounded(RANDOM.standard_normal(shape))


def e4m3_values():
    """What the 256 codes stand for."""
    codes = np.arange(256)
    exponent, mantissa = codes >> 3 & 15, codes & 7
    values = np.where(exponent == 0, mantissa * 2.0**-9, (8 + mantissa) * 2.0 ** (exponent - 10.0))
    values[(codes & 0x7F) == 0x7F] = np.nan
    return np.where(codes & 0x80, -values, values).astype(np.float32)


VALUES = e4m3_values()


def e4m3(values):
    """The nearest codes, the even one where two are as near; beyond 448 the last."""
    magnitudes = VALUES[:0x7F]
    size = np.minimum(np.abs(values).astype(np.float64), 448.0)
    above = np.searchsorted(magnitudes, size).clip(0, 0x7E)
    below = np.maximum(above - 1, 0)
    nearer = (size - magnitudes[below]) - (magnitudes[above] - size)
    code = np.where((nearer < 0) | ((nearer == 0) & (below % 2 == 0)), below, above)
    return (code | np.where(np.signbit(values), 0x80, 0)).astype(np.uint8)


def raw(value):
    return np.asarray(getattr(value, "array", value)).view(np.uint8)


def codes(*shape):
    """e4m3 codes of -1, 0 and 1 and the numbers."""
    values = RANDOM.integers(-1, 2, shape)
    return as_dtype(np.choose(values + 1, [0xB8, 0x00, 0x38]).astype(np.uint8), "f8_e4m3"), values.astype(np.float32)


@BOTH
@pytest.mark.parametrize("order", ["rounded", "fused"])
def test_norms_round_before_the_weight_or_behind_it(order, mode):
    x, w, residual = bf16(6, 256), bf16(256), bf16(6, 256)
    scale = lambda v: 1 / np.sqrt((v.astype(np.float64) ** 2).mean(-1, keepdims=True) + 1e-6)
    normed = lambda v: rounded((numbers(rounded(v * scale(v))) if order == "rounded" else v * scale(v)) * numbers(w))
    near = lambda a, b: np.abs(a.astype(np.int32) - b.astype(np.int32)).max() <= 1
    out = np.zeros_like(x)
    assert ops.rms_norm(out, x, w, 1e-6, weight_order=order, mode=mode) is None
    assert near(out, normed(numbers(x))) and (out != normed(numbers(x))).mean() < 0.01
    total = rounded(numbers(x) + numbers(residual))
    y, z = x.copy(), residual.copy()
    ops.fused_add_rms_norm(y, z, w, 1e-6, weight_order=order, mode=mode)
    np.testing.assert_array_equal(z, total)
    assert near(y, normed(numbers(total))) and (y != normed(numbers(total))).mean() < 0.01


def test_norms_of_a_gpu_are_those_of_vllms_kernels():
    x, w, residual = bf16(300, 7168), bf16(7168), bf16(300, 7168)
    for rows in (2, 300):
        out, y, z, again, more = np.zeros_like(x[:rows]), x[:rows].copy(), residual[:rows].copy(), x[:rows].copy(), residual[:rows].copy()
        ops.rms_norm(out, x[:rows], w, 1e-6, mode="hopper")
        wanted = dodona.rmsnorm(x[:rows], w, kernel="vllm", weight_order="rounded", mode="hopper")
        assert raw(out).tobytes() == raw(wanted).tobytes()
        ops.fused_add_rms_norm(y, z, w, 1e-6, mode="hopper")
        kernel = "vllm_256" if rows == 300 else "vllm"
        dodona.fused_add_rmsnorm(again, more, w, normalize="rounded", weight_order="rounded", kernel=kernel, mode="hopper")
        assert y.tobytes() == again.tobytes() and z.tobytes() == more.tobytes()
    with pytest.raises(compat.NotOffered, match="mode is hopper"):
        ops.rms_norm(out, x, w, 1e-6, weight_order="fused", mode="hopper")


@BOTH
def test_rotations_round_every_product(mode):
    cache, positions = bf16(32, 8), RANDOM.integers(0, 32, 5)
    query, key = bf16(5, 2 * 16), bf16(5, 16)
    cos, sin = (numbers(cache)[positions][:, None, part] for part in (slice(0, 4), slice(4, 8)))

    def turned(values):
        heads = numbers(values).reshape(5, -1, 16)
        first, second = heads[..., :4], heads[..., 4:8]
        each = lambda value: numbers(rounded(value))
        made = np.concatenate([each(each(first * cos) - each(second * sin)), each(each(second * cos) + each(first * sin)), heads[..., 8:]], -1)
        return rounded(made).reshape(values.shape)

    wanted = turned(query), turned(key)
    ops.rotary_embedding(positions, query, key, 16, cache, True, mode=mode)
    np.testing.assert_array_equal(query, wanted[0])
    np.testing.assert_array_equal(key, wanted[1])
    with pytest.raises(compat.NotOffered, match="rope_dim_offset is 8"):
        ops.rotary_embedding(positions, query, key, 16, cache, True, 8)


@BOTH
def test_states_are_merged_with_logarithms_by_heads(mode):
    a, b = RANDOM.standard_normal((2, 7, 3, 64)).astype(np.float32)
    sa, sb = RANDOM.standard_normal((2, 3, 7)).astype(np.float32)
    sa[1, 2], sb[2, 3] = -np.inf, np.inf
    out, lse = np.zeros_like(a), np.zeros_like(sa)
    ops.merge_attn_states(out, a, sa, b, sb, lse, mode=mode)
    wide = lambda s: np.exp(np.where(np.isinf(s), -np.inf, s).astype(np.float64)).T[..., None]
    np.testing.assert_allclose(out, (a * wide(sa) + b * wide(sb)) / (wide(sa) + wide(sb)), rtol=3e-6, atol=1e-6)
    np.testing.assert_allclose(lse, np.log(wide(sa) + wide(sb))[..., 0].T, rtol=2e-6, atol=1e-6)
    alone = np.zeros_like(a)
    ops.merge_attn_states(alone, a, sa, b, sb, mode=mode)
    assert alone.tobytes() == out.tobytes()


@BOTH
def test_one_scale_for_all_is_given_or_found(mode):
    x = (RANDOM.standard_normal((5, 48)) * 3).astype(np.float32)
    scale = np.array([0.03], np.float32)
    made, same = ops.scaled_fp8_quant(x, scale, mode=mode)
    np.testing.assert_array_equal(raw(made), e4m3(x * (np.float32(1) / scale)))
    assert same is scale
    made, found = ops.scaled_fp8_quant(x, mode=mode)
    np.testing.assert_array_equal(found, np.abs(x).max() / np.float32(448))
    np.testing.assert_array_equal(raw(made), e4m3(x * (np.float32(1) / found)))
    padded, found = ops.scaled_fp8_quant(x, num_token_padding=8, mode=mode)
    assert raw(padded).shape == (8, 48) and found.shape == (1,)
    np.testing.assert_array_equal(raw(padded)[:5], raw(made))
    room = as_dtype(np.full((5, 48), 9, np.uint8), "f8_e4m3")
    assert ops.scaled_fp8_quant(x, scale, output=room, mode=mode)[0] is room
    np.testing.assert_array_equal(raw(room), e4m3(x * (np.float32(1) / scale)))


@BOTH
def test_a_scale_for_each_row_has_a_least_value_and_divides(mode):
    x = (RANDOM.standard_normal((6, 64)) * 3).astype(np.float32)
    x[1] *= 1e-5
    x[2] = 0
    for width, bound in ((64, None), (17, None), (64, 0.7), (64, 0.0003)):
        part, limit = np.ascontiguousarray(x[:, :width]), None if bound is None else np.array([bound], np.float32)
        made, scales = ops.scaled_fp8_quant(part, scale_ub=limit, use_per_token_if_dynamic=True, mode=mode)
        largest = np.minimum(np.abs(part).max(-1, keepdims=True), np.float32(np.inf if bound is None else bound))
        wanted = np.maximum(largest / np.float32(448), np.float32(1 / (448 * 512)))
        np.testing.assert_array_equal(scales, wanted)
        np.testing.assert_array_equal(raw(made), e4m3(part / wanted))


@BOTH
@pytest.mark.parametrize("powers", [False, True])
def test_a_scale_for_each_group(powers, mode):
    x = (RANDOM.standard_normal((3, 2, 256)) * 3).astype(np.float32)
    made, scales = fp8_utils.per_token_group_quant_fp8(x, 128, use_ue8m0=powers, mode=mode)
    wanted = np.abs(x.reshape(3, 2, 2, 128)).max(-1) / np.float32(448)
    wanted = np.exp2(np.ceil(np.log2(wanted.astype(np.float64)))).astype(np.float32) if powers else wanted
    np.testing.assert_array_equal(scales, wanted)
    np.testing.assert_array_equal(raw(made), e4m3(x / np.repeat(wanted, 128, -1)))
    assert fp8_utils.per_token_group_quant_fp8(x, 128, column_major_scales=True, mode=mode)[1].strides[-2:] == (4, 8)


@BOTH
@pytest.mark.parametrize("each", [(False, False), (True, False), (False, True), (True, True)])
def test_products_with_one_scale_or_one_for_each(each, mode):
    (a, x), (b, y) = codes(2, 3, 64), codes(32, 64)
    sa, sb = (np.exp2(RANDOM.integers(-2, 3, size if many else 1)).astype(np.float32) for many, size in zip(each, (6, 32)))
    bias = rounded(RANDOM.integers(-4, 5, 32).astype(np.float32))
    turned = as_dtype(raw(b).T, "f8_e4m3")
    sums = (x.reshape(6, 64) @ y.T) * sa.reshape(-1, 1) * sb
    for given in (None, bias):
        out = ops.cutlass_scaled_mm(a, turned, sa.reshape(-1, 1), sb.reshape(1, -1), "bf16", given, mode=mode)
        np.testing.assert_array_equal(numbers(raw(out)).reshape(6, 32), numbers(rounded(sums + (0 if given is None else numbers(bias)))))
    assert np.asarray(out).shape == (2, 3, 32)


@BOTH
@pytest.mark.parametrize("rows, columns", [(4, 128), (5, 128), (5, 192), (8, 16)])
def test_products_with_scales_of_blocks(rows, columns, mode):
    (a, x), (b, y) = codes(rows, 256), codes(columns, 256)
    sa, sb = (np.exp2(RANDOM.integers(-2, 3, shape)).astype(np.float32) for shape in ((rows, 2), (2, -(-columns // 128))))
    out = ops.cutlass_scaled_mm(a, as_dtype(raw(b).T, "f8_e4m3"), sa, sb, "bf16", mode=mode)
    wanted = (x * np.repeat(sa, 128, 1)) @ (y.T * np.repeat(np.repeat(sb, 128, 0), 128, 1)[:, :columns])
    np.testing.assert_array_equal(numbers(raw(out)), numbers(rounded(wanted)))


def test_products_of_int8():
    a, b = RANDOM.integers(-9, 9, (5, 32)).astype(np.int8), RANDOM.integers(-9, 9, (16, 32)).astype(np.int8)
    out = ops.cutlass_scaled_mm(a, b.T, np.float32([[0.5]]), np.float32([[0.25]]), "bf16")
    np.testing.assert_array_equal(numbers(raw(out)), numbers(rounded((a.astype(np.float32) @ b.T.astype(np.float32)) * 0.125)))


@BOTH
def test_routing_writes_where_each_choice_stands(mode):
    logits = RANDOM.permuted(np.tile(np.arange(12, dtype=np.float32), (7, 1)), axis=1)
    for kind in (np.int32, np.int64, np.uint32):
        weights, ids, places = np.zeros((7, 3), np.float32), np.zeros((7, 3), kind), np.zeros((7, 3), np.int32)
        ops.topk_softmax(weights, ids, places, logits, mode=mode)
        np.testing.assert_array_equal(ids, np.argsort(-logits)[:, :3])
        shares = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
        np.testing.assert_allclose(weights, np.take_along_axis(shares, ids.astype(np.int64), 1), rtol=1e-6)
        np.testing.assert_array_equal(places, np.arange(7)[:, None] + 7 * np.arange(3))
    ops.topk_softmax(weights, ids, places, logits, True, mode=mode)  # as newer versions have it, by position
    np.testing.assert_allclose(weights.sum(-1), 1, rtol=1e-6)


@pytest.mark.parametrize("ids", [RANDOM.integers(0, 8, (9, 2)), np.full((3, 2), 7), np.zeros((0, 2), np.int64), RANDOM.integers(0, 8, (700, 2))])
@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_ids_are_put_together_by_expert(ids, kind):
    room = ids.size + 8 * 15
    sorted_ids, blocks, total = np.full(room, 99, np.int32), np.full(-(-room // 16), 99, np.int32), np.full(1, 99, np.int32)
    ops.moe_align_block_size(ids.astype(kind), 8, 16, sorted_ids, blocks, total)
    counts = -(-np.bincount(ids.reshape(-1), minlength=8) // 16) * 16
    assert total[0] == counts.sum()
    np.testing.assert_array_equal(blocks[: total[0] // 16], np.repeat(np.arange(8), counts // 16))
    assert not blocks[total[0] // 16 :].any() and (sorted_ids[total[0] :] == ids.size).all()
    for expert, (begin, end) in enumerate(zip(np.cumsum(counts) - counts, np.cumsum(counts))):
        here = sorted_ids[begin:end]
        np.testing.assert_array_equal(np.sort(here[here < ids.size]), np.flatnonzero(ids.reshape(-1) == expert))


def test_rows_of_experts_are_added_in_order():
    x = bf16(5, 3, 64)
    out = np.zeros((5, 64), np.uint16)
    ops.moe_sum(x, out)
    np.testing.assert_array_equal(numbers(out), numbers(rounded(numbers(rounded(numbers(x[:, 0]) + numbers(x[:, 1]))) + numbers(x[:, 2]))))


def test_pages_are_written_and_read():
    cache = np.zeros((6, 16, 24), np.uint16)[:, :, :]
    kv_c, k_pe, slots = bf16(9, 16), bf16(9, 8), np.array([3, 95, -1, 17, 18, 40, 41, 0], np.int64)
    ops.concat_and_cache_mla(kv_c, k_pe, cache, slots, "auto", np.ones(1, np.float32))
    wanted = np.zeros((96, 24), np.uint16)
    for token, slot in enumerate(slots):
        if slot >= 0:
            wanted[slot] = np.concatenate([kv_c[token], k_pe[token]])
    np.testing.assert_array_equal(cache.reshape(96, 24), wanted)
    table, ends = np.array([[5, 0, 0], [1, 2, 0]], np.int32), np.array([0, 16, 40], np.int32)
    dst = np.full((41, 24), 7, np.uint16)
    ops.cp_gather_cache(cache, dst, table, ends, 2)
    np.testing.assert_array_equal(dst, np.concatenate([wanted[80:96], wanted[16:40], np.full((1, 24), 7, np.uint16)]))
    for call in ((2, "auto", np.ones(1, np.float32)), (np.zeros(40, np.int32), 40, "auto", np.ones(1, np.float32))):
        again = np.full((41, 24), 7, np.uint16)
        ops.gather_and_maybe_dequant_cache(cache, again, table, ends, *call)
        assert again.tobytes() == dst.tobytes()
    ops.cp_gather_cache(cache, dst, table[1:], np.array([0, 8], np.int32), 1, np.array([16], np.int32))
    np.testing.assert_array_equal(dst[:8], wanted[32:40])
    ops.cp_gather_cache(cache, dst, table[1:], np.array([0, 8], np.int32), 1, np.array([13], np.int32))  # from within a page on
    np.testing.assert_array_equal(dst[:8], wanted[29:37])
    keys, values, k_pages, v_pages = bf16(3, 2, 8), bf16(3, 2, 8), np.zeros((2, 4, 2, 8), np.uint16), np.zeros((2, 4, 2, 8), np.uint16)
    ops.reshape_and_cache_flash(keys, values, k_pages, v_pages, np.array([7, -1, 2], np.int64), "auto", None, None)
    assert (k_pages[1, 3] == keys[0]).all() and (v_pages[0, 2] == values[2]).all() and np.count_nonzero(k_pages.any((2, 3))) == 2


def test_four_bits():
    x, one = bf16(32, 64), np.ones(1, np.float32)
    q, sf = ops.scaled_fp4_quant(x, one)
    wanted = dodona.scaled_fp4_quant(x, one)
    assert raw(q).tobytes() == raw(wanted[0]).tobytes() and raw(sf).tobytes() == raw(wanted[1]).tobytes()
    out = ops.cutlass_scaled_fp4_mm(q, q, sf, sf, one, "bf16")
    assert raw(out).tobytes() == raw(dodona.cutlass_scaled_fp4_mm(q, q, sf, sf, one, "bf16")).tobytes()
    words = RANDOM.integers(0, 2**31, (8, 2)).astype(np.int32)
    scales, zeros = RANDOM.standard_normal((1, 16)).astype(np.float16), RANDOM.integers(0, 2**31, (1, 2)).astype(np.int32)
    order = [0, 4, 1, 5, 2, 6, 3, 7]
    fours = lambda value: np.stack([value.view(np.uint32) >> 4 * place & 15 for place in order], -1).reshape(len(value), -1).astype(np.int32)
    np.testing.assert_array_equal(np.asarray(ops.awq_dequantize(words, scales, zeros, 0, 0, 0)), ((fours(words) - fours(zeros)) * scales).astype(np.float16))


def case_of(line):
    case = dodona.gen(line)
    return case.arguments(), {name: raw(value) for name, value in case.run().items()}


def test_decoding_leaves_logarithms_alone():
    a, wanted = case_of("cutlass_mla_decode B=2 N=4 pages=36 P=16 W=16 --attr sm_scale=0.1352337788608801 --seed 1")
    out, nothing = np.zeros((2, 4, 512), np.uint16), np.zeros(0, np.float32)
    given = (a["q_nope"], a["q_pe"], a["kv_c_and_k_pe_cache"], a["seq_lens"], a["page_table"], np.zeros(64, np.uint8), a["sm_scale"], 1)
    made = ops.sm100_cutlass_mla_decode(out, nothing, *given)
    np.testing.assert_array_equal(raw(out), wanted["out"])
    np.testing.assert_array_equal(raw(made), wanted["out"])
    with pytest.raises(compat.NotOffered, match="lse has room"):
        ops.sm100_cutlass_mla_decode(out, np.zeros((2, 4), np.float32), *given)


def test_grouped_products_of_four_bits_and_what_goes_before_them():
    a, wanted = case_of("cutlass_fp4_group_mm M=150 N=32 K=64 E=3 R=768 --with blockscale_offsets --with problem_sizes --seed 1")
    out = np.zeros((150, 32), np.uint16)
    ops.cutlass_fp4_moe_mm(
        as_dtype(out, "bf16"), a["a_fp4"], a["b_fp4"], a["a_blockscale"], a["b_blockscale"], a["alphas"], a["problem_sizes"], a["expert_offsets"], a["blockscale_offsets"]
    )
    np.testing.assert_array_equal(raw(out), wanted["out"])
    a, wanted = case_of("scaled_fp4_experts_quant M=40 T=40 K=80 E=4 R=512 --seed 1")
    offsets = np.array([0, 128, 256, 384, 512], np.int32)
    codes_of, scales = ops.scaled_fp4_experts_quant(a["input_tensor"], a["input_global_scale"], a["expert_offsets"], offsets, 1)
    np.testing.assert_array_equal(raw(codes_of), wanted["output"])
    a, wanted = case_of("prepare_moe_input M=33 topk=2 --attr num_experts=3 --attr n=64 --attr k=128 --attr blockscale_offsets=true --seed 1")
    offsets, first, second, into, out_of, scales = (np.zeros(shape, np.int32) for shape in (4, (3, 3), (3, 3), 66, 66, 4))
    ops.get_cutlass_moe_mm_data(a["topk_ids"], offsets, first, second, into, out_of, 3, 64, 128, scales)
    for name, made in (("expert_offsets", offsets), ("problem_sizes1", first), ("problem_sizes2", second), ("input_permutation", into), ("output_permutation", out_of), ("blockscale_offsets", scales)):
        np.testing.assert_array_equal(raw(made), wanted[name])


def test_the_first_product_of_a_layer():
    a, wanted = case_of("dsv3_fused_a_gemm T=2 --seed 1")
    out = np.zeros((2, 2112), np.uint16)
    ops.dsv3_fused_a_gemm(out, a["mat_a"], a["mat_b"])
    np.testing.assert_array_equal(raw(out), wanted["output"])
    rows, places = bf16(4, 8), np.array([2, 0, 3], np.int32)
    np.testing.assert_array_equal(np.asarray(ops.shuffle_rows(rows, places)).view(np.uint16), rows[places])


def test_vllm_is_left_alone_by_install():
    assert "vllm" not in compat.PACKAGES and "rms_norm" in compat.functions("vllm")
    with pytest.raises(compat.NotOffered, match="gptq_gemm is not offered"):
        ops.gptq_gemm()
    asked = ("cutlass_scaled_mm_supports_fp8", "cutlass_scaled_mm_supports_block_fp8", "cutlass_scaled_mm_supports_fp4", "cutlass_sparse_scaled_mm_supported")
    assert [getattr(ops, name)(90) for name in asked] == [True, True, False, False]


def pages():
    return np.zeros((2, 4, 24), np.uint16)


ONE = np.ones(1, np.float32)
BAD = {
    "a float": ("rms_norm", lambda: (np.zeros((2, 64), np.uint16), 1.0, bf16(64), 1e-6), "input"),
    "no weight": ("rms_norm", lambda: (np.zeros((2, 64), np.uint16), bf16(2, 64), None, 1e-6), "weight"),
    "other rows": ("fused_add_rms_norm", lambda: (bf16(2, 64), bf16(3, 64), bf16(64), 1e-6), "residual"),
    "logarithms by tokens": ("merge_attn_states", lambda: (np.zeros((7, 3, 64), np.float32),) + (np.ones((7, 3, 64), np.float32), np.ones((7, 3), np.float32)) * 2, "prefix_lse"),
    "one dimension": ("scaled_fp8_quant", lambda: (bf16(64),), "input"),
    "integers": ("scaled_fp8_quant", lambda: (np.ones((2, 64), np.int32),), "input"),
    "two scales": ("scaled_fp8_quant", lambda: (bf16(2, 64), np.ones(2, np.float32)), "scale"),
    "padding of true": ("scaled_fp8_quant", lambda: (bf16(2, 64), ONE, True), "num_token_padding"),
    "room of another shape": ("scaled_fp8_quant", lambda: (bf16(2, 64), ONE, None, None, False, codes(3, 64)[0]), "output"),
    "a bound that is none": ("scaled_fp8_quant", lambda: (bf16(2, 64), None, None, ONE * np.nan, True), "scale_ub"),
    "other K": ("cutlass_scaled_mm", lambda: (codes(4, 64)[0], codes(32, 32)[0], ONE, ONE, "bf16"), "b"),
    "scales of nothing": ("cutlass_scaled_mm", lambda: (codes(4, 256)[0], codes(256, 128)[0], np.ones((3, 2), np.float32), np.ones((2, 1), np.float32), "bf16"), "scale_a"),
    "ids of another shape": ("topk_softmax", lambda: (np.zeros((2, 3), np.float32), np.zeros((2, 2), np.int32), np.zeros((2, 3), np.int32), np.ones((2, 8), np.float32)), "topk_ids"),
    "places in int64": ("topk_softmax", lambda: (np.zeros((2, 3), np.float32), np.zeros((2, 3), np.int32), np.zeros((2, 3), np.int64), np.ones((2, 8), np.float32)), "token_expert_indices"),
    "an id beyond": ("moe_align_block_size", lambda: (np.array([[8]]), 8, 16, np.zeros(300, np.int32), np.zeros(20, np.int32), np.zeros(1, np.int32)), "topk_ids"),
    "too little room": ("moe_align_block_size", lambda: (np.array([[7, 1]]), 8, 16, np.zeros(16, np.int32), np.zeros(20, np.int32), np.zeros(1, np.int32)), "sorted_token_ids"),
    "a block of 0": ("moe_align_block_size", lambda: (np.array([[7, 1]]), 8, 0, np.zeros(16, np.int32), np.zeros(20, np.int32), np.zeros(1, np.int32)), "block_size"),
    "a slot beyond": ("concat_and_cache_mla", lambda: (bf16(2, 16), bf16(2, 8), pages(), np.array([1, 8]), "auto", ONE), "slot_mapping"),
    "codes": ("concat_and_cache_mla", lambda: (bf16(2, 16), bf16(2, 8), pages(), np.array([1, 2]), "fp8", ONE), "kv_cache_dtype"),
    "a cache of floats": ("concat_and_cache_mla", lambda: (bf16(2, 16), bf16(2, 8), pages().astype(np.float32), np.array([1, 2]), "auto", ONE), "kv_cache"),
    "a page beyond": ("cp_gather_cache", lambda: (pages(), np.zeros((4, 24), np.uint16), np.array([[2]], np.int32), np.array([0, 4], np.int32), 1), "block_table"),
    "ends that fall": ("cp_gather_cache", lambda: (pages(), np.zeros((4, 24), np.uint16), np.array([[1]], np.int32), np.array([0, 5], np.int32), 1), "cu_seq_lens"),
    "a start before the first token": ("cp_gather_cache", lambda: (pages(), np.zeros((4, 24), np.uint16), np.array([[1]], np.int32), np.array([0, 1], np.int32), 1, np.array([-1], np.int32)), "seq_starts"),
    "few ids": ("get_cutlass_moe_mm_data", lambda: (np.zeros((4, 2), np.int32), *[np.zeros(9, np.int32)] * 5, 8, 64, 64), "topk_ids"),
}


@pytest.mark.parametrize("what", BAD)
def test_what_does_not_fit_is_refused_before_anything_is_written(what):
    name, make, argument = BAD[what]
    given = make()
    kept = [value.copy() if isinstance(value, np.ndarray) else value for value in given]
    with pytest.raises(compat.Refused, match=f"^{name}: .*{argument}"):
        getattr(ops, name)(*given)
    for value, before in zip(given, kept):
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(value, before)


# ---- routers ----


def sigmoid(x):
    return 1 / (1 + np.exp(-np.asarray(x, np.float64)))


def logits(tokens, experts):
    return np.stack([RANDOM.permutation(experts) for _ in range(tokens)]).astype(np.float32) / 16 - 1


def room(tokens, topk):
    return np.zeros((tokens, topk), np.float32), np.zeros((tokens, topk), np.int32), np.zeros((tokens, topk), np.int32)


@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize("renormalize", [False, True])
def test_experts_of_the_best_groups(older, renormalize):
    x, bias = logits(5, 32), RANDOM.permutation(32).astype(np.float32) / 32
    scores = sigmoid(x).astype(np.float32)
    how = (8, 3, 6, renormalize, 2.5)
    weights, ids = ops.grouped_topk(scores, scores + bias, *how) if older else ops.grouped_topk(x, *how, bias, 1)
    for t in range(5):
        groups = (scores[t] + bias).reshape(8, 4)
        kept = np.argsort(-np.sort(groups, 1)[:, -2:].sum(1), kind="stable")[:3]
        choice = np.full(32, -np.inf)
        for group in kept:
            choice[group * 4 : group * 4 + 4] = groups[group]
        wanted = np.argsort(-choice, kind="stable")[:6]
        assert np.array_equal(ids[t], wanted)
        own = scores[t, wanted] / (scores[t, wanted].sum() if renormalize else 1) * 2.5
        assert np.allclose(weights[t], own, rtol=1e-5)


def test_rows_of_no_number_have_equal_weights():
    weights, ids = ops.grouped_topk(np.full((1, 32), np.nan, np.float32), 1, 1, 4, True, 2.5, np.zeros(32, np.float32), 1)
    assert np.array_equal(ids, [[0, 1, 2, 3]]) and np.array_equal(weights, np.full((1, 4), 0.25, np.float32))


@pytest.mark.parametrize("renormalize", [False, True])
@pytest.mark.parametrize("by_sigmoid", [False, True])
def test_a_bias_steers_the_choice_alone(renormalize, by_sigmoid):
    x, bias = logits(4, 12), np.zeros(12, np.float32)
    bias[5] = 3
    weights, ids, places = room(4, 3)
    (ops.topk_sigmoid if by_sigmoid else ops.topk_softmax)(weights, ids, places, x, renormalize, bias)
    scores = sigmoid(x) if by_sigmoid else np.exp(x) / np.exp(x).sum(1, keepdims=True)
    assert np.array_equal(ids, np.argsort(-(scores + bias), 1, kind="stable")[:, :3]) and (ids[:, 0] == 5).all()
    own = np.take_along_axis(scores, ids.astype(np.int64), 1)
    assert np.allclose(weights, own / (own.sum(1, keepdims=True) if renormalize else 1), rtol=1e-5)
    assert np.array_equal(places, np.arange(12).reshape(3, 4).T)


def test_logits_in_fp32_and_queries_of_both_parts():
    rows, weights = bf16(3, 3072), RANDOM.standard_normal((256, 3072)).astype(np.float32)
    wanted = numbers(rows).astype(np.float64) @ weights.T.astype(np.float64)
    assert np.abs(ops.fp32_router_gemm(rows, weights) - wanted).max() <= np.abs(wanted).max() * 2.0**-23
    for changes, words in (((rows[:, ::2], weights), "supported"), ((bf16(33, 3072), weights), "num_tokens"), ((numbers(rows).astype(np.float16), weights), "float32 or bfloat16"), ((rows, weights.astype(np.float16)), "expected float32")):
        with pytest.raises(compat.Refused, match=words):
            ops.fp32_router_gemm(*changes)
    latent, rotated, out = bf16(2, 3, 16), bf16(2, 3, 8), np.zeros((2, 3, 24), np.uint16)
    ops.concat_mla_q(latent, rotated, out)
    assert np.array_equal(out, np.concatenate([latent, rotated], -1))


def test_many_experts_are_aligned():
    ids, block = np.array([[5000, 3], [5000, 8190]], np.int32), 4
    sorted_ids, experts, total = np.zeros(16, np.int32), np.full(4, 7, np.int32), np.zeros(1, np.int32)
    ops.moe_align_block_size(ids, 8191, block, sorted_ids, experts, total)
    assert total[0] == 12 and np.array_equal(experts, [3, 5000, 8190, 0]) and np.array_equal(sorted_ids[:12], [1, 4, 4, 4, 0, 2, 4, 4, 3, 4, 4, 4])


def test_tokens_without_a_key_on_either_side_keep_the_prefix():
    prefix, suffix, out = bf16(3, 2, 16), bf16(3, 2, 16), np.zeros((3, 2, 16), np.uint16)
    first, second, both = RANDOM.standard_normal((2, 3)).astype(np.float32), RANDOM.standard_normal((2, 3)).astype(np.float32), np.zeros((2, 3), np.float32)
    first[1, 2] = second[1, 2] = -np.inf
    ops.merge_attn_states(out, prefix, first, suffix, second, both)
    assert np.array_equal(out[2, 1], prefix[2, 1]) and both[1, 2] == -np.inf and np.isfinite(np.delete(both.reshape(-1), 5)).all()
    assert np.isfinite(numbers(out)).all() and not np.array_equal(out[0, 0], prefix[0, 0])


# ---- experts of a rank, the indexer, caches of codes: in NumPy what test_compat_vllm_sparse.py has in torch ----


def i32(*values):
    return np.array(values, np.int32)


def test_a_map_of_experts():
    rows, blocks, total = (np.full(size, 99, np.int32) for size in (16, 4, 1))
    ops.moe_align_block_size(np.array([[0, 3], [2, 1], [-1, 2], [3, 2]], np.int32), 4, 4, rows, blocks, total, i32(-1, 0, 1, -1))
    assert total[0] == 8 and blocks.tolist() == [0, 1, -1, -1]
    assert rows[:8].tolist() == [3, 8, 8, 8, 2, 5, 7, 8] and (rows[8:] == 8).all()
    rows, blocks, total = (np.zeros(size, np.int32) for size in (24, 6, 1))
    ops.batched_moe_align_block_size(6, 4, i32(3, 0, 5), rows, blocks, total)
    assert rows[:12].tolist() == [0, 1, 2, 18, 12, 13, 14, 15, 16, 18, 18, 18] and blocks.tolist() == [0, 2, 2, -1, -1, -1] and total[0] == 12


def test_roots_of_softplus():
    logits = RANDOM.standard_normal((5, 16)).astype(np.float32)
    weights, ids, places = np.zeros((5, 3), np.float32), np.zeros((5, 3), np.int32), np.zeros((5, 3), np.int32)
    ops.topk_hash_softplus_sqrt(weights, ids, places, logits, True, 2.0)
    scores = np.sqrt(np.logaddexp(0, logits.astype(np.float64)))
    wanted = np.argsort(-scores, axis=1)[:, :3]
    chosen = np.take_along_axis(scores, wanted, 1)
    np.testing.assert_array_equal(ids, wanted)
    np.testing.assert_allclose(weights, 2 * chosen / chosen.sum(1, keepdims=True), rtol=1e-6)


def test_the_indexers_keys():
    keys, cache = bf16(4, 128), np.zeros((2, 4, 132), np.uint8)
    ops.indexer_k_quant_and_cache(keys, cache, np.array([5, 0, -1, 2]), 128, "auto")
    scales = np.abs(numbers(keys)).max(1) / np.float32(448)
    for token, (page, row) in ((0, (1, 1)), (1, (0, 0)), (3, (0, 2))):
        whole = cache[page].reshape(-1)
        np.testing.assert_array_equal(whole[row * 128 : row * 128 + 128], e4m3(numbers(keys)[token] / scales[token]))
        assert whole[512 + row * 4 :][:4].copy().view(np.float32)[0] == scales[token]
    found, of_rows = np.zeros((3, 128), np.uint8), np.zeros((3, 4), np.uint8)
    ops.cp_gather_indexer_k_quant_cache(cache, found, of_rows, i32(1, 0).reshape(2, 1), i32(0, 2, 3))
    np.testing.assert_array_equal(found[1], e4m3(numbers(keys)[0] / scales[0]))
    assert of_rows[1].view(np.float32)[0] == scales[0]


def test_rows_of_656_bytes():
    cache, out = np.zeros((2, 2, 656), np.uint8), np.zeros((3, 576), np.uint16)
    codes, scales, rope = RANDOM.integers(0, 0x70, (4, 512)).astype(np.uint8), RANDOM.random((4, 4)).astype(np.float32), bf16(4, 64)
    cache.reshape(4, 656)[:] = np.concatenate([codes, scales.view(np.uint8), rope.view(np.uint8)], axis=1)
    ops.cp_gather_and_upconvert_fp8_kv_cache(cache, out, i32(1, 0).reshape(2, 1), i32(0, 1), 2, i32(1, 0))
    for row, at in enumerate((3, 0, 1)):
        np.testing.assert_array_equal(out[row, :512], rounded((VALUES[codes[at]].reshape(4, 128) * scales[at][:, None]).reshape(-1)))
        np.testing.assert_array_equal(out[row, 512:], rope[at])


def test_gates_and_norms_in_codes():
    x = bf16(3, 256)
    found, scales = ops.silu_and_mul_per_block_quant(x, 64, "f8_e4m3")
    gate, up = numbers(x)[:, :128].astype(np.float64), numbers(x)[:, 128:]
    middle = numbers(rounded(numbers(rounded(gate / (1 + np.exp(-gate)))) * up)).reshape(3, 2, 64)
    np.testing.assert_allclose(scales, np.abs(middle).max(2) / 448, rtol=2**-7)
    near = np.abs(VALUES[raw(found)].reshape(3, 2, 64) * scales[..., None] - middle)
    assert (near <= np.abs(middle) / 16 + scales[..., None] / 256).all()
    weight = bf16(256)
    found, scales = ops.rms_norm_dynamic_per_token_quant(x, weight, 1e-6, "f8_e4m3")
    normed = numbers(rounded(numbers(rounded(numbers(x) / np.sqrt((numbers(x) ** 2).mean(1, keepdims=True) + 1e-6))) * numbers(weight)))
    np.testing.assert_allclose(scales[:, 0], np.abs(normed).max(1) / 448, rtol=2**-7)


def test_rows_have_global_scales_of_their_own():
    from dodona.compat import flashinfer

    x, each = bf16(5, 96), RANDOM.random(5).astype(np.float32) * 100 + 1
    found, tiles = flashinfer.fp4_quantize(x, each)
    for row in range(5):
        alone, scales = flashinfer.fp4_quantize(x[row : row + 1], each[row : row + 1], is_sf_swizzled_layout=False)
        np.testing.assert_array_equal(found[row], alone[0])
        np.testing.assert_array_equal(raw(tiles).reshape(-1)[row * 16 :][:4], raw(scales).reshape(-1)[:4])
    with pytest.raises(compat.Refused, match="global_scale"):
        flashinfer.fp4_quantize(x, each[:3])
