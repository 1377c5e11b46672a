"""Products of codes that share exponents by 32, and of packed e2m1, in upstream's place: against the formula in fp64."""

import numpy as np
import pytest

import dodona
from dodona import compat
from dodona.compat import deep_gemm, flashinfer
from dodona.compat._layouts import E2M1, E4M3
from dodona.compat.flashinfer import gemm

RANDOM = np.random.default_rng(11)
BOTH = pytest.mark.parametrize("mode", [None, "golden"])


def wide(words):
    return (words.view(np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def exponents(*shape):
    return RANDOM.integers(112, 124, shape).astype(np.uint8)


def codes(*shape):
    values = RANDOM.integers(0, 0x7F, shape).astype(np.uint8) | RANDOM.integers(0, 2, shape).astype(np.uint8) << 7
    return values, E4M3[values].astype(np.float64)


def packed(rows, inner):
    values = RANDOM.integers(0, 16, (rows, inner)).astype(np.uint8)
    return values[:, ::2] | values[:, 1::2] << 4, E2M1[values].astype(np.float64)


def scaled(values, powers, size=32):
    return values * np.repeat(2.0 ** (powers.astype(int) - 127), size, axis=-1)[..., : values.shape[-1]]


def tiled(powers, high=128):
    """Exponents [rows, blocks] in tiles of `high` rows and 4 columns."""
    rows, blocks = powers.shape
    whole = np.pad(powers, ((0, -rows % high), (0, -blocks % 4)))
    if high == 8:
        return whole.reshape(-1, 8, whole.shape[1] // 4, 4).transpose(0, 2, 1, 3).reshape(-1)
    return whole.reshape(-1, 4, 32, whole.shape[1] // 4, 4).transpose(0, 3, 2, 1, 4).reshape(-1)


def near(found, wanted, part=2**-8):
    found = wide(found) if found.dtype.itemsize == 2 and found.dtype != np.float16 else np.asarray(found, np.float64)
    assert np.isfinite(found).all() and np.abs(found - wanted).max() <= part * np.abs(wanted).max()


def f8(values):
    return dodona.as_dtype(values, "f8_e4m3")


@BOTH
@pytest.mark.parametrize("backend, eight", [("cutlass", False), ("auto", True), ("trtllm", True), ("trtllm", False)])
def test_mm_mxfp8(mode, backend, eight):
    (a, x), (b, y), sa, sb = codes(9, 288), codes(256, 288), exponents(9, 9), exponents(256, 9)
    wanted = scaled(x, sa) @ scaled(y, sb).T
    rows, powers = b, sb
    if backend == "trtllm":
        order = flashinfer.utils.get_shuffle_matrix_a_row_indices(b, 128)
        rows, powers = b[order], sb[order]
    given = (f8(a), f8(rows.T), tiled(sa, 8 if eight else 128), tiled(powers))
    near(gemm.mm_mxfp8(*given, use_8x4_sf_layout=eight, backend=backend, mode=mode), wanted)
    near(gemm.mm_mxfp8(*given, out_dtype="f16", use_8x4_sf_layout=eight, backend=backend, mode=mode), wanted, 2**-10)
    out = np.zeros((9, 256), np.uint16)
    assert gemm.mm_mxfp8(*given, out, use_8x4_sf_layout=eight, backend=backend, mode=mode) is out
    near(out, wanted)


@BOTH
def test_bmm_mxfp8(mode):
    (a, x), (b, y), sa, sb = codes(2, 3, 128), codes(2, 136, 128), exponents(2, 3, 4), exponents(2, 136, 4)
    given = (f8(a), f8(np.swapaxes(b, 1, 2)), tiled(sa.reshape(6, 4)), tiled(sb.reshape(272, 4)), "bf16")
    near(gemm.bmm_mxfp8(*given, mode=mode), np.stack([scaled(x[i], sa[i]) @ scaled(y[i], sb[i]).T for i in range(2)]))


@BOTH
@pytest.mark.parametrize("kind", ["f8_e4m3", "f8_e5m2"])
def test_groups_of_rows_times_packed_weights(mode, kind):
    a = RANDOM.integers(0, 0x70, (12, 128)).astype(np.uint8)
    x = E4M3[a].astype(np.float64) if kind == "f8_e4m3" else (a.astype(np.uint16) << 8).view(np.float16).astype(np.float64)
    weights, sa = [packed(16, 128) for _ in range(3)], exponents(12, 4)
    sb = exponents(3, 16, 4)
    ends = [0, 4, 4, 12]
    # each group's scales fill whole tiles of 128 rows, those of a group without rows none or one
    begins = [(end + i * 127) // 128 * 128 for i, end in enumerate(ends)]
    of_rows = np.zeros((begins[-1], 4), np.uint8)
    for i in range(3):
        of_rows[begins[i] : begins[i] + ends[i + 1] - ends[i]] = sa[ends[i] : ends[i + 1]]
    lying = tiled(of_rows).reshape(-1, 4)
    made = gemm.group_gemm_mxfp4_nt_groupwise(
        dodona.as_dtype(a, kind), np.stack([codes for codes, _ in weights]), lying, np.stack([tiled(part) for part in sb]).reshape(3, 128, 4), np.array(ends, np.int32), mode=mode
    )
    wanted = [scaled(x[ends[i] : ends[i + 1]], sa[ends[i] : ends[i + 1]]) @ scaled(weights[i][1], sb[i]).T for i in range(3)]
    near(made, np.concatenate(wanted))


@pytest.mark.parametrize(
    "change, told",
    [
        ({"a": lambda a: f8(np.zeros((1, 9, 288), np.uint8))}, "a accepts 2d tensors"),
        ({"a": lambda a: np.zeros((9, 288), np.float32)}, "a must be a float8_e4m3fn tensor"),
        ({"b": lambda b: f8(np.zeros((288, 64), np.uint8))}, "MXFP8 requires n >= 128"),
        ({"a_descale": lambda s: s[:-1]}, "a_descale shape mismatch for swizzled layout"),
        ({"b_descale": lambda s: s.reshape(1, -1)}, "b_descale .* requires 1D swizzled"),
        ({"a_descale": lambda s: np.full_like(s, 252)}, "a holds numbers beyond those of bf16"),
        ({"backend": lambda b: "other"}, "backend is 'other'"),
    ],
)
def test_what_does_not_fit_is_refused(change, told):
    given = {"a": f8(codes(9, 288)[0]), "b": f8(codes(256, 288)[0].T), "a_descale": tiled(exponents(9, 9)), "b_descale": tiled(exponents(256, 9)), "backend": "cutlass"}
    given.update({name: made(given[name]) for name, made in change.items()})
    with pytest.raises(compat.Refused, match=f"^mm_mxfp8: {told}"):
        gemm.mm_mxfp8(**given)


# ---- DeepGEMM ----


def powers(codes):
    return (codes.astype(np.uint32) << 23).view(np.float32)


def room(*shape):
    return np.full(shape, 7, np.uint16)


@BOTH
@pytest.mark.parametrize("words", [False, True])
def test_deep_gemm_of_packed_weights(mode, words):
    (a, x), (b, y), sa, sb = codes(5, 256), packed(24, 256), exponents(5, 2), exponents(24, 8)
    of = (lambda part: np.pad(part, ((0, 0), (0, -part.shape[1] % 4))).view(np.int32)) if words else powers
    d = room(5, 24)
    deep_gemm.fp8_fp4_gemm_nt((f8(a), of(sa)), (b.view(np.int8), of(sb)), d, recipe_a=(1, 128), recipe_b=(1, 32), mode=mode)
    wanted = scaled(x, sa, 128) @ scaled(y, sb).T
    near(d, wanted)
    sums = np.ones((5, 24), np.float32)
    deep_gemm.fp8_fp4_gemm_nt((f8(a), of(sa)), (b.view(np.int8), of(sb)), sums, c=np.full((5, 24), 3, np.float32), recipe_a=(1, 128), recipe_b=(1, 32), mode=mode)
    near(sums, wanted + 3, 2**-18)


def test_deep_gemm_of_packed_weights_whose_columns_are_neighbours():
    (a, x), (b, y), sa, sb = codes(5, 64), packed(24, 64), exponents(5, 2), exponents(24, 2)
    values = np.stack([b & 15, b >> 4], -1).reshape(24, 64)
    by_columns = np.ascontiguousarray((values[::2] | values[1::2] << 4).T)  # [K, N / 2]
    wanted = scaled(x, sa) @ scaled(y, sb).T
    for name, given in (("fp8_fp4_gemm_nt", (by_columns.T, powers(sb))), ("fp8_fp4_gemm_nn", (by_columns, powers(sb).T))):
        d = room(5, 24)
        getattr(deep_gemm, name)((f8(a), powers(sa)), (given[0].view(np.int8), given[1]), d, recipe=(1, 1, 32))
        near(d, wanted)


def test_deep_gemm_of_packed_weights_in_groups_reads_no_other_rows():
    (a, x), sa = codes(256, 128), powers(exponents(256, 4))
    weights, sb = [packed(16, 128) for _ in range(2)], exponents(2, 16, 4)
    of_row = np.array([0] * 100 + [-1] * 28 + [1] * 128, np.int32)
    sa[100:128] = 0.3
    d, b = room(256, 16), (np.stack([part for part, _ in weights]).view(np.int8), powers(sb))
    deep_gemm.m_grouped_fp8_fp4_gemm_nt_contiguous((f8(a), sa), b, d, of_row, recipe_a=(1, 32), recipe_b=(1, 32))
    numbers = x * np.repeat(sa.astype(np.float64), 32, axis=1)
    for group, rows in ((0, slice(0, 100)), (1, slice(128, 256))):
        near(d[rows], numbers[rows] @ scaled(weights[group][1], sb[group]).T)
    masked = room(2, 128, 16)
    deep_gemm.m_grouped_fp8_fp4_gemm_nt_masked(
        (f8(a.reshape(2, 128, 128)), sa.reshape(2, 128, 4)), b, masked, np.array([100, 2], np.int32), 100, recipe_a=(1, 32), recipe_b=(1, 32)
    )
    near(masked[0, :100], numbers[:100] @ scaled(weights[0][1], sb[0]).T)
    near(masked[1, :2], numbers[128:130] @ scaled(weights[1][1], sb[1]).T)
    assert (masked[1, 2:] == 7).all()


def test_deep_gemm_refuses_scales_that_are_no_powers_of_two():
    (a, _), (b, _) = codes(5, 64), packed(24, 64)
    with pytest.raises(compat.NotOffered, match="^fp8_fp4_gemm_nt: scales of a are no powers of two"):
        deep_gemm.fp8_fp4_gemm_nt((f8(a), np.full((5, 2), 0.3, np.float32)), (b.view(np.int8), powers(exponents(24, 2))), room(5, 24), recipe=(1, 1, 32))


@pytest.mark.parametrize("in_eight", [False, True])
def test_16_bit_c_is_added_to_the_rounded_product(in_eight):
    (a, x), (b, y) = codes(5, 128), codes(24, 128)
    c = (RANDOM.standard_normal((5, 24)).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    plain, d = room(5, 24), c.copy()
    one = (np.ones((5, 1), np.float32), np.ones((24, 1), np.float32))
    if in_eight:
        multiply = lambda out, more: deep_gemm.fp8_gemm_nt((f8(a), one[0]), (f8(b), one[1]), out, more, recipe=(1, 1, 128))
    else:
        words = [(E4M3[values].view(np.uint32) >> 16).astype(np.uint16) for values in (a, b)]
        multiply = lambda out, more: deep_gemm.bf16_gemm_nt(*words, out, more)
    multiply(plain, None)
    multiply(d, d)
    near(plain, x @ y.T)
    exact = (wide(plain) + wide(c)).astype(np.float32).view(np.uint32)
    assert np.array_equal(d, (exact + 0x7FFF + (exact >> 16 & 1) >> 16).astype(np.uint16))
    with pytest.raises(compat.Refused, match="c (is float32|has shape)"):
        multiply(d, np.ones((5, 24), np.float32)[:4])


@pytest.mark.parametrize("size", [32, 128])
def test_groups_of_k_by_their_ends(size):
    ks, width, columns = [40, 0, 100], 16, 8
    ends, begins = [40, 64, 164], [0, 64, 64]
    blocks = [-(-k // size) for k in ks]
    (a, x), (b, y) = codes(192, width), codes(192, columns)
    sa, sb = exponents(sum(blocks), width), exponents(sum(blocks), columns)
    c = RANDOM.standard_normal((3, width, columns)).astype(np.float32)
    kept = deep_gemm.get_mk_alignment_for_contiguous_layout()
    deep_gemm.set_mk_alignment_for_contiguous_layout(32)
    try:
        d = c.copy()
        deep_gemm.k_grouped_fp8_gemm_tn_contiguous((f8(a), powers(sa)), (f8(b), powers(sb)), d, None, np.array(ends, np.int32), d, recipe=(1, 1, size), use_psum_layout=True)
        words = [(E4M3[values].view(np.uint32) >> 16).astype(np.uint16) for values in (a, b)]
        plain = c.copy()
        deep_gemm.k_grouped_bf16_gemm_tn_contiguous(*words, plain, [], np.array(ends, np.int32), plain, use_psum_layout=True)
        packed_sf = deep_gemm.get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor(powers(sa), np.array(ends, np.int32), None, size, 32, use_psum_layout=True)
    finally:
        deep_gemm.set_mk_alignment_for_contiguous_layout(kept)
    first = 0
    for group, (begin, k, count) in enumerate(zip(begins, ks, blocks)):
        part = slice(begin, begin + k)
        sides = [scaled(values[part].T, scales[first : first + count].T, size) for values, scales in ((x, sa), (y, sb))]
        near(d[group], c[group] + sides[0] @ sides[1].T, 1e-6)
        near(plain[group], c[group] + x[part].T @ y[part], 1e-6)
        first += count
    rows = [np.pad(sa[sum(blocks[:g]) : sum(blocks[: g + 1])].T, ((0, 0), (0, -n % 4))) for g, n in enumerate(blocks)]
    assert np.array_equal(packed_sf, np.concatenate([np.ascontiguousarray(part).view(np.int32) for part in rows if part.size], axis=1).T)


def test_one_scale_of_all_rows_of_fp8_scaled_mm():
    (a, x), (b, y) = codes(4, 64), codes(16, 64)
    from dodona.compat import sgl_kernel

    given = (f8(a), f8(np.asarray(b).T))
    of_columns = np.full(16, 0.5, np.float32)
    one = sgl_kernel.fp8_scaled_mm(*given, np.full(1, 0.25, np.float32), of_columns, "bf16")
    each = sgl_kernel.fp8_scaled_mm(*given, np.full(4, 0.25, np.float32), of_columns, "bf16")
    assert np.asarray(one).tobytes() == np.asarray(each).tobytes()
    near(np.asarray(one), x @ y.T / 8)
    with pytest.raises(compat.Refused, match="scales_a must contain either one scale or one of each row"):
        sgl_kernel.fp8_scaled_mm(*given, np.full(2, 0.25, np.float32), of_columns, "bf16")


# ---- scales of packed e2m1 ----


def test_scales_in_tiles_have_columns_by_four():
    x = (RANDOM.standard_normal((5, 288)).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    one = np.ones(1, np.float32)
    packed_codes, tiles = flashinfer.fp4_quantize(x, one)
    flat_codes, by_rows = flashinfer.fp4_quantize(x, one, is_sf_swizzled_layout=False)
    assert tiles.shape == (128, 20) and by_rows.shape == (5, 18) and np.array_equal(packed_codes, flat_codes)
    assert np.array_equal(tiled(np.asarray(by_rows)), np.asarray(flashinfer.block_scale_interleave(by_rows)).view(np.uint8).reshape(-1))
    found = np.asarray(tiles).reshape(-1, 5, 32, 4, 4).transpose(0, 3, 2, 1, 4).reshape(128, 20)
    assert np.array_equal(found[:5, :18], by_rows)


def test_scales_of_a_mixtures_input_may_come_row_by_row():
    codes_in = RANDOM.integers(0, 256, (5, 64)).astype(np.uint8)
    scales = RANDOM.integers(40, 60, (5, 8)).astype(np.uint8)
    weights = [RANDOM.integers(0, 256, shape).astype(np.uint8) for shape in ((3, 128, 64), (3, 128, 32))]
    of_weights = [RANDOM.integers(40, 60, shape).astype(np.uint8) for shape in ((3, 128, 8), (3, 128, 4))]
    ids, shares = RANDOM.integers(0, 3, (5, 2)).astype(np.int32), RANDOM.random((5, 2)).astype(np.float32)
    ones = np.ones(3, np.float32)
    list_of_scales = [ones[:1], dodona.as_dtype(of_weights[0], "f8_e4m3"), ones, ones[:1], dodona.as_dtype(of_weights[1], "f8_e4m3"), ones]
    run = lambda sf, **how: flashinfer.fused_moe.cutlass_fused_moe(codes_in, ids, shares, *weights, "bf16", quant_scales=list_of_scales, input_sf=sf, **how)[0]
    wanted, found = run(tiled(scales)), run(scales, swizzled_input_sf=False)
    assert wide(np.asarray(wanted)).any() and np.asarray(found).tobytes() == np.asarray(wanted).tobytes()
    with pytest.raises(compat.Refused, match="cutlass_fused_moe: input_sf has shape .* expected 5 rows of 8 scales"):
        run(scales[:4], swizzled_input_sf=False)


@pytest.mark.parametrize("eight", [False, True])
def test_mm_fp4_of_the_trtllm_backend_takes_rows_in_the_order_of_its_weights(eight):
    x, w = ((RANDOM.standard_normal(shape).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16) for shape in ((9, 96), (64, 96)))
    one = np.ones(1, np.float32)
    (a, sa), (b, sb) = flashinfer.fp4_quantize(x, one, is_sf_8x4_layout=eight), flashinfer.fp4_quantize(w, one)
    shuffled, of_shuffled = flashinfer.nvfp4_quantize(w, one, do_shuffle=True)
    assert not np.array_equal(shuffled, b)
    wanted = flashinfer.mm_fp4(a, b.T, sa, sb.T, one, "bf16", use_8x4_sf_layout=eight)
    found = flashinfer.mm_fp4(a, shuffled.T, sa, of_shuffled.T, one, "bf16", use_8x4_sf_layout=eight, backend="trtllm")
    assert wide(np.asarray(wanted)).any() and np.asarray(found).tobytes() == np.asarray(wanted).tobytes()
    with pytest.raises(compat.Refused, match="mm_fp4: backend is trtllm with .*expected NVFP4 and bfloat16"):
        flashinfer.mm_fp4(a, b.T, sa, sb.T, one, "f16", backend="trtllm")
    with pytest.raises(compat.Refused, match="mm_fp4: b_descale has shape .*expected 6 scales of 64 rows"):
        flashinfer.mm_fp4(a, b.T, sa, sb.T[:4], one, "bf16", backend="trtllm")
    with pytest.raises(compat.Refused, match="mm_fp4: backend is cute-dsl, which requires N % 8 == 0"):
        flashinfer.mm_fp4(a, b.T, sa, sb.T, one, "bf16", use_8x4_sf_layout=True, backend="cute-dsl")
