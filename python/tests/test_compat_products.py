"""FlashInfer's products and router under its names, and what its tests ask beside kernels: numbers are those of the formula."""

import numpy as np
import pytest

import dodona
from dodona import compat
from dodona.compat import flashinfer
from dodona.compat.flashinfer import gemm
from dodona.compat.flashinfer.fused_moe import NoAuxTc, fused_topk_deepseek
from dodona.compat.flashinfer.quantization import packbits, segment_packbits
from dodona.compat.flashinfer.utils import calculate_tile_tokens_dim
from dodona.compat._layouts import E4M3

RANDOM = np.random.default_rng(9)
BOTH = pytest.mark.parametrize("mode", [None, "golden"])


def bf16(*shape):
    return (RANDOM.standard_normal(shape).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def wide(codes):
    return (codes.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def fp8(*shape):
    """Codes and the numbers that they stand for."""
    codes = RANDOM.integers(0, 0x60, shape).astype(np.uint8) | RANDOM.integers(0, 2, shape).astype(np.uint8) << 7
    return dodona.as_dtype(codes, "f8_e4m3"), E4M3[codes].astype(np.float64)


def i32(*values):
    return np.array(values, np.int32)


def near(found, wanted, part=2**-8):
    found = wide(found) if found.dtype == np.uint16 else np.asarray(found, np.float64)
    assert np.abs(found - wanted).max() <= part * np.abs(wanted).max()


@BOTH
def test_sixteen_bits_and_what_is_added(mode):
    a, b, bias = bf16(5, 64), bf16(24, 64), bf16(24)
    wanted = wide(a) @ wide(b).T
    near(gemm.mm_bf16(a, b.T, mode=mode), wanted)
    near(gemm.mm_bf16(a, b.T, out_dtype="f32", backend="auto", mode=mode), wanted, 1e-6)
    near(gemm.mm_bf16(a, b.T, out_dtype="f16", mode=mode), wanted, 2**-11)
    near(gemm.tgv_gemm_sm100(a, b.T, bias, mode=mode), wanted + wide(bias))
    out = np.zeros((5, 24), np.uint16)
    assert gemm.tinygemm_bf16(a, b, out, bias, mode=mode) is None
    near(out, wanted + wide(bias))
    room = np.zeros((5, 24), np.uint16)
    assert gemm.tgv_gemm_sm100(a, b.T, bias, out=room, mode=mode) is room and room.tobytes() == out.tobytes()
    near(gemm.bmm_bf16(np.stack([a, a]), np.stack([b.T, b.T]), mode=mode)[1], wanted)
    with pytest.raises(compat.Refused, match="mm_bf16: bias is given, expected none with the cutlass backend"):
        gemm.mm_bf16(a, b.T, bias, backend="cutlass")
    with pytest.raises(compat.Refused, match=r"tgv_gemm_sm100: b has 64 rows, expected 63"):
        gemm.tgv_gemm_sm100(a[:, :63], b.T, bias)
    assert gemm.mm_bf16.is_backend_supported("cudnn") and not gemm.mm_bf16.is_backend_supported("nothing")


def test_segments_have_weights_of_their_own():
    x, weights = RANDOM.standard_normal((10, 32)).astype(np.float16), RANDOM.standard_normal((3, 16, 32)).astype(np.float16)
    wrapper, of = flashinfer.SegmentGEMMWrapper(None), np.array([2, 0, 0, 1], np.int64)
    out = wrapper.run(x, weights, 4, True, seg_lens=np.array([1, 2, 0, 7], np.int64), weight_indices=of)
    wanted = np.concatenate([x[a:b].astype(np.float64) @ weights[w].T.astype(np.float64) for a, b, w in ((0, 1, 2), (1, 3, 0), (3, 10, 1))])
    near(out, wanted, 2**-10)
    again = wrapper.run(x, np.ascontiguousarray(weights.swapaxes(1, 2)), 4, False, seg_indptr=np.array([0, 1, 3, 3, 10], np.int64), weight_indices=of)
    assert again.tobytes() == out.tobytes()
    with pytest.raises(compat.Refused, match=r"segments of \[1, 2\] rows, expected 10"):
        wrapper.run(x, weights, 2, True, seg_lens=np.array([1, 2], np.int64))
    with pytest.raises(compat.Refused, match="weight_indices holds 3, expected 0 to 2"):
        wrapper.run(x, weights, 1, True, seg_lens=np.array([10], np.int64), weight_indices=np.array([3], np.int64))


def scaled(values, scales, rows):
    """Each block of 128 of K times its scale, which `rows` rows share."""
    whole = np.repeat(np.repeat(scales.astype(np.float64), rows, 0)[: len(values)], 128, 1)
    return values * whole


@BOTH
@pytest.mark.parametrize("order", ["K", "MN"])
@pytest.mark.parametrize("rows", [1, 128])
def test_scales_of_blocks_lie_either_way(order, rows, mode):
    (a, x), (b, y) = fp8(256, 256), fp8(128, 256)
    sa, sb = (RANDOM.uniform(0.5, 2, shape).astype(np.float32) for shape in ((256 // rows, 2), (1, 2)))
    wanted = scaled(x, sa, rows) @ scaled(y, sb, 128).T
    given = (sa, sb) if order == "K" else (np.ascontiguousarray(sa.T), np.ascontiguousarray(sb.T))
    near(gemm.gemm_fp8_nt_groupwise(a, b, *given, order, 1, (rows, 128, 128), mode=mode), wanted)
    near(gemm.gemm_fp8_nt_groupwise(a, b, *given, order, 1, (rows, 128, 128), out_dtype="f16", mode=mode), wanted, 2**-10)
    if rows == 128:
        near(gemm.gemm_fp8_nt_blockscaled(a, b, *given, order, mode=mode), wanted)
    both = dodona.as_dtype(np.stack([b.array, b.array]), "f8_e4m3")
    out = gemm.group_gemm_fp8_nt_groupwise(a, both, given[0], np.stack([given[1], given[1] * 2]), i32(0, 128, 256), (rows, 128, 128), order, mode=mode)
    near(out, np.concatenate([wanted[:128], 2 * wanted[128:]]))


def test_blocks_name_what_does_not_fit():
    (a, _), (b, _) = fp8(8, 256), fp8(128, 256)
    sa, sb = np.ones((8, 2), np.float32), np.ones((1, 2), np.float32)
    with pytest.raises(compat.Refused, match=r"a_scale has shape \[8, 2\], expected \[2, 8\]"):
        gemm.gemm_fp8_nt_groupwise(a, b, sa, sb, "MN")
    with pytest.raises(compat.Refused, match="scale_major_mode is None, expected 'MN' or 'K'"):
        gemm.gemm_fp8_nt_groupwise(a, b, sa, sb)
    with pytest.raises(compat.NotOffered, match=r"scale_granularity_mnk is \(1, 1, 128\)"):
        gemm.gemm_fp8_nt_groupwise(a, b, sa, sb, "K", scale_granularity_mnk=(1, 1, 128))
    with pytest.raises(compat.Refused, match=r"m_indptr is \[0, 2, 8\], expected multiples of 4"):
        gemm.group_gemm_fp8_nt_groupwise(a, dodona.as_dtype(np.stack([b.array] * 2), "f8_e4m3"), sa, np.stack([sb] * 2), i32(0, 2, 8), scale_major_mode="K")


def test_groups_are_deepgemms():
    (a, x), (b, y) = fp8(256, 128), fp8(128, 128)
    sa, sb = RANDOM.uniform(0.5, 2, (256, 1)).astype(np.float32), np.full((2, 1, 1), 0.5, np.float32)
    both = dodona.as_dtype(np.stack([b.array, b.array]), "f8_e4m3")
    wanted = scaled(x, sa, 1) @ (y * 0.5).T
    near(gemm.group_deepgemm_fp8_nt_groupwise(a, both, sa, sb, np.repeat(i32(0, 1), 128)), wanted)
    halves = dodona.as_dtype(a.array.reshape(2, 128, 128), "f8_e4m3")
    out = gemm.batch_deepgemm_fp8_nt_groupwise(halves, both, sa.reshape(2, 128, 1), sb, i32(128, 5), 128)
    near(out[0], wanted[:128])
    near(out[1, :5], wanted[128:133])
    into = np.zeros((256, 128), np.uint16)
    assert flashinfer.deep_gemm.m_grouped_fp8_gemm_nt_contiguous((a, sa), (both, sb), into, np.repeat(i32(0, 1), 128)) is None
    near(into, wanted)


@BOTH
def test_prepared_weights_are_put_back_in_order(mode):
    (a, x), (b, y) = fp8(3, 256), fp8(128, 256)
    prepared = flashinfer.prepare_low_latency_gemm_weights(b.array, {})
    assert prepared.shape == (2, 128, 128)
    alpha = np.array([0.25], np.float32)
    near(flashinfer.mm_fp8(a, dodona.as_dtype(prepared, "f8_e4m3"), alpha, mode=mode), 0.25 * x @ y.T)
    with pytest.raises(compat.Refused, match=r"mm_fp8: b has shape \[1, 128, 128\], expected \[2, N, 128\]"):
        flashinfer.mm_fp8(a, dodona.as_dtype(prepared[:1], "f8_e4m3"), alpha)


@BOTH
@pytest.mark.parametrize("inner, experts, wide_out", [(7168, 256, True), (7168, 128, False), (6144, 256, True)])
def test_routers_of_few_tokens(inner, experts, wide_out, mode):
    a, b = bf16(3, inner), bf16(experts, inner)
    route = getattr(gemm, f"mm_M1_16_K{inner}_N{experts}")
    out = np.zeros((3, experts), np.float32 if wide_out else np.uint16)
    assert route(a, b.T, out, mode=mode) is None
    near(out, wide(a) @ wide(b).T, 1e-5 if wide_out else 2**-8)
    for changes, told in (
        ({"mat_a": bf16(17, inner)}, "mat_a has 17 rows .num_tokens., expected 1 to 16"),
        ({"mat_b": bf16(experts + 1, inner).T}, f"mat_b has {experts + 1} columns .num_experts., expected {experts}"),
        ({"mat_a": bf16(3, inner - 1)}, f"mat_a has {inner - 1} columns .hidden_dim., expected {inner}"),
        ({"mat_b": np.ascontiguousarray(b.T)}, "mat_b is row-major, expected column-major"),
        ({"out": out.astype(np.float64)}, "out is float64, expected "),
    ):
        with pytest.raises(compat.Refused, match=told):
            route(**{"mat_a": a, "mat_b": b.T, "out": out, **changes})


@BOTH
@pytest.mark.parametrize("route", [NoAuxTc, fused_topk_deepseek])
def test_experts_of_the_best_groups(route, mode):
    scores, bias = RANDOM.standard_normal((6, 64)).astype(np.float32), RANDOM.standard_normal(64).astype(np.float32)
    values, ids = np.zeros((6, 4), np.float32), np.zeros((6, 4), np.int32)
    replay = np.full((8, 4), -1, np.int16)
    assert route(scores, bias, 4, 2, 4, 2.5, values, ids, routing_replay_out=replay, mode=mode) is None
    sigmoid = 1 / (1 + np.exp(-scores.astype(np.float64)))
    keys = (sigmoid + bias).reshape(6, 4, 16)
    best = np.argsort(-np.sort(keys, -1)[..., -2:].sum(-1), axis=1)[:, :2]
    kept = np.where(np.isin(np.arange(4)[None], best[0])[..., None], 0, -np.inf)
    for t in range(6):
        kept = np.where(np.isin(np.arange(4), best[t])[:, None], keys[t], -np.inf).reshape(-1)
        wanted = np.argsort(-kept)[:4]
        assert set(ids[t]) == set(wanted)
        np.testing.assert_allclose(values[t], 2.5 * sigmoid[t, ids[t]] / sigmoid[t, ids[t]].sum(), rtol=1e-5)
    assert (replay[:6] == ids).all() and (replay[6:] == -1).all()
    half = np.zeros((6, 4), np.float16)
    route(scores.astype(np.float16), bias, 4, 2, 4, 1.0, half, ids, mode=mode)
    assert np.abs(half.astype(np.float64).sum(1) - 1).max() < 2e-3
    for changes, told in (
        ({"topk": 9}, "topk_values has shape|topk is 9"),
        ({"topk_group": 5}, "topk_group is 5 of 4 groups"),
        ({"n_group": 1, "topk_group": 1, "topk": 2}, "topk_group is 1 of 1 groups|topk_values has shape"),
        ({"routing_replay_out": replay[:5]}, "routing_replay_out has shape"),
        ({"topk_indices": ids.astype(np.int64)}, "topk_indices is i64"),
    ):
        given = {"scores": scores, "bias": bias, "n_group": 4, "topk_group": 2, "topk": 4, "routed_scaling_factor": 1.0, "topk_values": values, "topk_indices": ids}
        with pytest.raises(compat.Refused, match=told):
            route(**{**given, **changes})


def test_bits_in_bytes():
    x = RANDOM.integers(0, 2, 29).astype(bool)
    for order in ("big", "little"):
        assert packbits(x, order).tobytes() == np.packbits(x, bitorder=order).tobytes()
        packed, starts = segment_packbits(x, i32(0, 9, 9, 29), order)
        assert starts.tolist() == [0, 2, 2, 5] and packed[:2].tobytes() == np.packbits(x[:9], bitorder=order).tobytes()
        assert packed[2:].tobytes() == np.packbits(x[9:], bitorder=order).tobytes()
    with pytest.raises(compat.Refused, match="bitorder is 'none'"):
        packbits(x, "none")
    with pytest.raises(compat.Refused, match=r"indptr is \[0, 9\], expected to rise from 0 to 29"):
        segment_packbits(x, i32(0, 9))


def test_what_would_be_compiled_needs_nothing():
    made = flashinfer.activation.gen_act_and_mul_module("silu")
    assert flashinfer.jit.build_jit_specs([made, gemm.gen_gemm_module()], verbose=False) is None
    with pytest.raises(compat.NotOffered, match="gen_act_and_mul_module: build_and_load"):
        made.build_and_load()
    assert [calculate_tile_tokens_dim(t, 256, 8) for t in (1, 1024, 1 << 20)] == [8, 64, 128]


def test_scales_that_older_versions_do_not_read_may_be_none():
    decode = flashinfer.trtllm_batch_decode_with_kv_cache_mla
    query, cache = RANDOM.standard_normal((1, 1, 16, 576)).astype(np.float16), RANDOM.standard_normal((2, 32, 576)).astype(np.float16)
    given = (query, cache, None, 128, 512, 64, i32(0, 1).reshape(1, 2), i32(40), 64)
    wanted = decode(*given, bmm1_scale=0.07)
    assert decode(*given, bmm1_scale=0.07, bmm1_scale_log2_tensor=None, bmm2_scale_tensor=None).tobytes() == wanted.tobytes()
    with pytest.raises(compat.NotOffered, match="bmm1_scale_log2_tensor is given, offered is None"):
        decode(*given, bmm1_scale_log2_tensor=np.ones(1, np.float32))


# ---- layouts, and what newer versions ask ----


@pytest.mark.parametrize("layout", ["layout_128x4", "layout_8x4", "layout_linear"])
def test_powers_lie_in_tiles_or_rows(layout):
    x = RANDOM.standard_normal((9, 192)).astype(np.float16)
    of = flashinfer.SfLayout[layout]
    codes, scales = flashinfer.mxfp4_quantize(x, sfLayout=of)
    wanted = flashinfer.mxfp4_dequantize(*flashinfer.mxfp4_quantize(x))
    assert flashinfer.mxfp4_dequantize(codes, scales, sfLayout=of).tobytes() == wanted.tobytes()
    assert np.abs(wanted - x).max() <= 0.3 * np.abs(x).max()
    eight, tiled = layout == "layout_8x4", layout != "layout_linear"
    assert flashinfer.e2m1_and_ufp8sf_scale_to_float(codes, scales, None, 32, 0, tiled, eight).tobytes() == wanted.tobytes()
    with pytest.raises(compat.Refused, match="sfLayout is 7, expected one of SfLayout"):
        flashinfer.mxfp4_dequantize(codes, scales, sfLayout=7)


def test_rows_have_scales_of_the_usual_kernels_alone(monkeypatch):
    x = RANDOM.standard_normal((4, 64)).astype(np.float16)
    flashinfer.nvfp4_quantize(x, 1.0, per_token_activation=True)
    monkeypatch.setenv("FLASHINFER_DISABLE_FP4_QUANT_FAST_MATH", "1")
    with pytest.raises(compat.NotOffered, match="per_token_activation is True with FLASHINFER_DISABLE_FP4_QUANT_FAST_MATH=1"):
        flashinfer.nvfp4_quantize(x, 1.0, per_token_activation=True)
    flashinfer.nvfp4_quantize(x, np.ones(1, np.float32))


def test_activations_say_whether_they_are_gated():
    kinds = flashinfer.tllm_enums.ActivationType
    assert [kind.name for kind in kinds if kind.is_gated] == ["Swiglu", "Geglu", "SwigluBias", "SwigluStep", "GegluTanh", "Situ"]
    assert kinds(3) is kinds.Swiglu and flashinfer.tllm_enums.is_gated_activation(kinds.Gelu) is False
    defaults = flashinfer.tllm_enums
    assert (defaults.DEFAULT_SWIGLU_ALPHA, defaults.DEFAULT_SWIGLU_BETA, defaults.DEFAULT_SWIGLU_LIMIT) == (1.0, 0.0, float(np.finfo(np.float32).max))
    assert (defaults.DEFAULT_SITU_BETA, defaults.DEFAULT_SITU_LINEAR_BETA) == (4.0, 25.0)


def test_mla_by_the_cutlass_kernel_has_its_own_scale():
    q_nope, q_pe = RANDOM.standard_normal((2, 128, 512)).astype(np.float16), RANDOM.standard_normal((2, 128, 64)).astype(np.float16)
    ckv, kpe = RANDOM.standard_normal((6, 64, 512)).astype(np.float16), RANDOM.standard_normal((6, 64, 64)).astype(np.float16)
    lengths, tables = i32(70, 128), i32(3, 0, 5, 2).reshape(2, 2)
    wrapper = flashinfer.mla.BatchMLAPagedAttentionWrapper(None, backend="cutlass")
    out = wrapper.run(q_nope, q_pe, ckv, kpe, kv_len=lengths, page_table=tables)
    wanted = dodona.cutlass_mla_decode(q_nope, q_pe, np.concatenate([ckv, kpe], -1), lengths, tables, sm_scale=192**-0.5)
    assert out.tobytes() == wanted.tobytes()
    plain = flashinfer.mla.BatchMLAPagedAttentionWrapper(None)
    plain.plan(i32(0, 1, 2), i32(0, 2, 4), i32(3, 0, 5, 2), lengths, 128, 512, 64, 64, False, 192**-0.5, "f16", "f16")
    near(out, np.asarray(plain.run(q_nope, q_pe, ckv, kpe), np.float64), 4e-3)
    room = np.zeros_like(out)
    assert wrapper.run(q_nope, q_pe, ckv, kpe, out=room, kv_len=lengths, page_table=tables) is not None and room.tobytes() == out.tobytes()
    for changes, told in (
        ({"return_lse": True}, "return_lse is given, offered is none with the cutlass backend"),
        ({"kv_len": None}, "kv_len is missing, expected with the cutlass backend"),
        ({"q_nope": q_nope[:, :64], "q_pe": q_pe[:, :64]}, "q_nope has 64 heads, expected 128"),
    ):
        with pytest.raises(compat.Refused, match=told):
            wrapper.run(**{"q_nope": q_nope, "q_pe": q_pe, "ckv_cache": ckv, "kpe_cache": kpe, "kv_len": lengths, "page_table": tables, **changes})
    codes = dodona.as_dtype(np.zeros((2, 128, 512), np.uint8), "f8_e4m3")
    assert wrapper.run(q_nope, q_pe, ckv, kpe, out=codes, kv_len=lengths, page_table=tables, o_scale=0.25) is codes
    near(E4M3[codes.array] * 0.25, np.asarray(out, np.float64), 2**-4)
    for changes, told in (
        ({"o_scale": float("nan")}, "o_scale must be a finite positive value"),
        ({"o_scale": 0.5, "out": None}, "out tensor must be provided when o_scale is used"),
        ({"o_scale": 0.5, "out": room}, "out must be an FP8 tensor when o_scale is provided"),
    ):
        with pytest.raises(compat.Refused, match=told):
            wrapper.run(**{"q_nope": q_nope, "q_pe": q_pe, "ckv_cache": ckv, "kpe_cache": kpe, "kv_len": lengths, "page_table": tables, "out": codes, **changes})
    with pytest.raises(compat.Refused, match="backend is 'no', expected auto, fa2, fa3 or cutlass"):
        flashinfer.mla.BatchMLAPagedAttentionWrapper(None, backend="no")


# ---- bf16 rows that are quantized on the way, and weights of four bits ----


@pytest.mark.parametrize("rows_of_a_scale", [1, 128])
def test_block_scales_of_rows_and_of_squares(rows_of_a_scale):
    case = dodona.gen(f"fp8_gemm_nt M=5 N=192 K=256 --attr gran_n={rows_of_a_scale} --seed 3")
    a = case.arguments()
    codes = lambda value: dodona.as_dtype(np.asarray(getattr(value, "array", value)).view(np.uint8), "f8_e4m3")
    wanted = np.asarray(case.run()["d"]).tobytes()
    for scales in (a["sfa"], np.ascontiguousarray(np.asarray(a["sfa"]).T)):  # the kernel reads blocks first
        made = flashinfer.gemm.fp8_blockscale_gemm_sm90(codes(a["a"]), codes(a["b"]), scales, a["sfb"])
        assert np.asarray(made).tobytes() == wanted


def test_rows_and_weights_in_sixteen_bits_are_quantized():
    """Rows by 128 of a row, weights by squares, whose largest magnitude is 448."""
    a, b = bf16(5, 256), bf16(192, 256)
    made = flashinfer.gemm.fp8_blockscale_gemm_sm90(a, b)
    squares = np.abs(np.pad(wide(b), ((0, 64), (0, 0))).reshape(2, 128, 2, 128)).max((1, 3)).astype(np.float32) / np.float32(448)
    by = np.repeat(np.repeat(squares, 128, 0)[:192], 128, 1)
    every = np.unique(E4M3[np.isfinite(E4M3)]).astype(np.float64)
    quotient = wide(b) / by
    at = np.clip(np.searchsorted(every, quotient), 1, len(every) - 1)
    nearest = np.where(quotient - every[at - 1] < every[at] - quotient, every[at - 1], every[at])
    codes, scales = dodona.sgl_per_token_group_quant_8bit(a)
    rows = E4M3[np.asarray(getattr(codes, "array", codes)).view(np.uint8)].astype(np.float64) * np.repeat(scales, 128, 1)
    near(made, rows @ (nearest * by).T, 2**-7)


@pytest.mark.parametrize("changes, words", [
    ({"input": bf16(3, 200), "weight": bf16(64, 200)}, "divisible by block size"), ({"weight": bf16(63, 256)}, "divisible by 64"),
    ({"input": np.zeros((3, 256), np.float32)}, "FP8 .*or BF16"), ({"input_scale": np.ones((3, 2), np.float32)}, "should not be provided for BF16"),
    ({"weight": dodona.as_dtype(np.zeros((64, 256), np.uint8), "f8_e4m3")}, "weight_scale is required when weight is FP8"),
    ({"input": dodona.as_dtype(np.zeros((3, 256), np.uint8), "f8_e4m3"), "input_scale": np.ones((3, 2), np.float32)}, "FP8 input.*BF16 weight.*not supported"),
])  # fmt: skip
def test_block_scales_that_do_not_fit_are_refused(changes, words):
    with pytest.raises(compat.Refused, match=words):
        flashinfer.gemm.fp8_blockscale_gemm_sm90(**{"input": bf16(3, 256), "weight": bf16(64, 256), **changes})


@pytest.mark.parametrize("alpha", [None, 0.3])
def test_weights_of_four_bits(alpha):
    rows, weights = bf16(3, 128), bf16(72, 128)
    codes, scales = (np.asarray(getattr(part, "array", part)) for part in flashinfer.fp4_quantize(weights, np.array([8.0], np.float32)))
    factor = None if alpha is None else np.array([alpha], np.float32)
    prepared = flashinfer.prepare_bf16_fp4_weights(codes, scales.view(np.uint8), factor, backend="cudnn")
    made = flashinfer.mm_bf16_fp4(rows, *prepared, backend="cudnn")
    values = flashinfer.e2m1_and_ufp8sf_scale_to_float(codes, scales.view(np.uint8), np.array([1.0 if alpha is None else alpha], np.float32))
    near(made, wide(rows) @ values.astype(np.float64).T)
    with pytest.raises(compat.Refused, match="requires at least"):
        flashinfer.prepare_bf16_fp4_weights(codes, scales.view(np.uint8).reshape(-1)[:64], backend="cudnn")
