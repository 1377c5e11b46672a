"""DeepGEMM's sums over heads and over groups of K, products in fp32, and the names of its first versions, against formulas in NumPy."""

import sys

import numpy as np
import pytest

from dodona import as_dtype, compat
from dodona.compat import deep_gemm

RANDOM = np.random.default_rng(5)
BOTH = pytest.mark.parametrize("mode", [None, "golden"])


def bf16(*shape):
    """Small whole numbers: sums of them are exact."""
    return (RANDOM.integers(-3, 4, shape).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def numbers(codes):
    return (codes.astype(np.uint32) << 16).view(np.float32)


def rounded(values):
    """To bf16; to the even one where two are as near."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return (bits + 0x7FFF + (bits >> 16 & 1) >> 16).astype(np.uint16)


def room(*shape):
    return np.full(shape, 7, np.uint16)


def codes(*shape):
    """e4m3 codes of -1, 0 and 1 and the numbers."""
    values = RANDOM.integers(-1, 2, shape)
    return as_dtype(np.choose(values + 1, [0xB8, 0x00, 0x38]).astype(np.uint8), "f8_e4m3"), values.astype(np.float32)


def scales(*shape):
    return np.exp2(RANDOM.integers(-2, 3, shape)).astype(np.float32)


def wide(sf, axis):
    return np.repeat(sf, 128, axis=axis)


@BOTH
@pytest.mark.parametrize("order, turn", [("nt", ""), ("nn", "b"), ("tn", "ab"), ("tt", "a")])
def test_sixteen_bits_in_fp32_with_and_without_c(order, turn, mode):
    a, b, c = bf16(5, 64), bf16(6, 64), RANDOM.standard_normal((5, 6)).astype(np.float32)
    given = [value.T.copy() if of in turn else value for of, value in zip("ab", (a, b))]
    d, sums = np.full((5, 6), 7, np.float32), numbers(a) @ numbers(b).T
    getattr(deep_gemm, f"bf16_gemm_{order}")(*given, d, mode=mode)
    np.testing.assert_array_equal(d, sums)
    getattr(deep_gemm, f"bf16_gemm_{order}")(*given, d, c, mode=mode)
    np.testing.assert_array_equal(d, sums + c)
    getattr(deep_gemm, f"cublaslt_gemm_{order}")(*given, d, d, mode=mode)
    np.testing.assert_array_equal(d, sums + (sums + c))
    small = room(5, 6)
    getattr(deep_gemm, f"cublaslt_gemm_{order}")(*given, small, mode=mode)
    np.testing.assert_array_equal(small, rounded(sums))


def test_codes_without_scales_are_what_they_stand_for():
    (a, x), (b, y) = codes(5, 128), codes(16, 128)
    d = room(5, 16)
    deep_gemm.cublaslt_gemm_nt(a, b, d)
    np.testing.assert_array_equal(d, rounded(x @ y.T))


@BOTH
@pytest.mark.parametrize("expr", ["bhr,hdr->bhd", "bhd,hdr->bhr"])
@pytest.mark.parametrize("cublaslt", [False, True])
def test_products_of_heads(expr, cublaslt, mode):
    x = bf16(4, 3, 32)
    y = bf16(3, 16, 32) if expr == "bhr,hdr->bhd" else bf16(3, 32, 24)[:, :, :16]
    z = np.full((4, 3, 20), 7, np.uint16)[:, :, :16]
    deep_gemm.einsum(expr, x, y, z, use_cublaslt=cublaslt, mode=mode)
    np.testing.assert_array_equal(z, rounded(np.einsum(expr, numbers(x), numbers(y))))


@BOTH
def test_one_sum_over_products(mode):
    x, y, c = bf16(3, 4, 32), bf16(3, 6, 32), RANDOM.standard_normal((4, 6)).astype(np.float32)
    sums, d, small = np.einsum("bmk,bnk->mn", numbers(x), numbers(y)), c.copy(), room(4, 6)
    deep_gemm.einsum("bmk,bnk->mn", x, y, d, d, mode=mode)
    np.testing.assert_array_equal(d, sums + c)
    deep_gemm.einsum("bmk,bnk->mn", x, y, small, mode=mode)
    np.testing.assert_array_equal(small, rounded(sums))
    with pytest.raises(compat.NotOffered, match="no fixed order"):
        deep_gemm.einsum("bmk,bnk->mn", x, y, small, mode="hopper")


@BOTH
@pytest.mark.parametrize("expr, at", [("bhr,hdr->bhd", (2, 2)), ("bhd,hdr->bhr", (2, 1))])
def test_products_of_heads_of_codes(expr, at, mode):
    (x, xs), (y, ys) = codes(4, 2, 256), codes(*((2, 128, 256) if at[1] == 2 else (2, 256, 128)))
    sfx, sfy = scales(4, 2, 2), scales(2, 1, 2) if at[1] == 2 else scales(2, 2, 1)
    d = room(4, 2, 128)
    deep_gemm.fp8_einsum(expr, (x, sfx), (y, sfy), d, mode=mode)
    wanted = np.einsum(expr, xs * wide(sfx, 2), ys * wide(wide(sfy, 1), 2))
    np.testing.assert_array_equal(d, rounded(wanted))


def test_a_sum_over_rows_of_codes_is_added_to_c():
    (x, xs), (y, ys) = codes(256, 2, 16), codes(256, 2, 24)
    sfx, sfy = scales(2, 2, 16), scales(2, 2, 24)
    d = RANDOM.integers(-9, 9, (2, 16, 24)).astype(np.float32)
    wanted = d + np.einsum("bhd,bhr->hdr", xs * wide(sfx, 0), ys * wide(sfy, 0))
    deep_gemm.fp8_einsum("bhd,bhr->hdr", (x, sfx), (y, sfy), d, d, recipe=(1, 1, 128))
    np.testing.assert_array_equal(d, wanted)


KS = [256, 0, 128]


def groups_of(values):
    """The groups' rows of K, by group."""
    ends = np.cumsum([0, *KS])
    return [values[begin:end] for begin, end in zip(ends, ends[1:])]


def in_groups():
    (a, x), (b, y) = codes(384, 16), codes(384, 24)
    sfa, sfb, c = scales(3, 16), scales(3, 24), RANDOM.integers(-9, 9, (3, 16, 24)).astype(np.float32)
    wanted = c + np.stack([left.T @ right for left, right in zip(groups_of(x * wide(sfa, 0)), groups_of(y * wide(sfb, 0)))])
    return (a, sfa), (b, sfb), c, wanted


def one_after_the_other(side):
    flat = np.concatenate([part.T.reshape(-1) for part in groups_of(side[0].array)])
    return as_dtype(flat, "f8_e4m3"), np.ascontiguousarray(side[1].T)


@BOTH
def test_groups_of_k(mode):
    a, b, c, wanted = in_groups()
    d, layout = np.full_like(c, 7), np.array(KS, np.int32)
    deep_gemm.k_grouped_fp8_gemm_tn_contiguous(a, b, d, KS, layout, c, mode=mode)
    np.testing.assert_array_equal(d, wanted)
    d = c.copy()
    deep_gemm.k_grouped_fp8_gemm_nt_contiguous(one_after_the_other(a), one_after_the_other(b), d, KS, layout, d, mode=mode)
    np.testing.assert_array_equal(d, wanted)


@BOTH
def test_groups_of_k_of_sixteen_bits(mode):
    a, b, c = bf16(384, 8), bf16(384, 24), RANDOM.integers(-9, 9, (3, 8, 24)).astype(np.float32)
    d = c.copy()
    deep_gemm.k_grouped_bf16_gemm_tn_contiguous(a, b, d, KS, np.array(KS, np.int32), d, mode=mode)
    wanted = c + np.stack([left.T @ right for left, right in zip(groups_of(numbers(a)), groups_of(numbers(b)))])
    np.testing.assert_array_equal(d, wanted)


def test_exponents_of_groups_of_k_have_words_of_their_own():
    sf, ks = scales(2 + 5 + 1, 8), [200, 640, 1]
    layout = np.zeros(3, np.int32)
    words = deep_gemm.get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor(sf, layout, ks, 128, 128)
    exponents = (np.log2(sf) + 127).astype(np.int64)
    wanted, at = [], 0
    for rows in (2, 5, 1):
        for begin in range(0, rows, 4):
            part = exponents[at + begin : at + min(begin + 4, rows)]
            wanted.append(sum(row << 8 * i for i, row in enumerate(part)))
        at += rows
    np.testing.assert_array_equal(words, np.array(wanted).astype(np.uint32).view(np.int32))
    np.testing.assert_array_equal(deep_gemm.get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor(sf, layout, ks), words)  # as before 2.3


def test_names_of_the_first_versions():
    (a, x), (b, y) = codes(8, 256), codes(128, 256)
    sfa, sfb, d = scales(8, 2), scales(1, 2), room(8, 128)
    deep_gemm.gemm_fp8_fp8_bf16_nt((a, deep_gemm.get_col_major_tma_aligned_tensor(sfa)), (b, sfb), d)
    wanted = (x * wide(sfa, 1)) @ (y * wide(wide(sfb, 0), 1)).T
    np.testing.assert_array_equal(d, rounded(wanted))
    sfb, out = scales(128, 2), np.ones((8, 128), np.float32)
    deep_gemm.wgrad_gemm_fp8_fp8_fp32_nt((a, sfa), (b, np.ascontiguousarray(sfb.T)), out)
    np.testing.assert_array_equal(out, 1 + (x * wide(sfa, 1)) @ (y * wide(sfb, 1)).T)
    left, right, c, wanted = in_groups()
    flat = [(one_after_the_other(side)[0], side[1]) for side in (left, right)]
    deep_gemm.k_grouped_wgrad_gemm_fp8_fp8_fp32_nt(*flat, c, KS)
    np.testing.assert_array_equal(c, wanted)
    grouped = room(2, 8, 128)
    sides = [(as_dtype(np.stack([part.array] * 2), "f8_e4m3"), np.stack([sf] * 2)) for part, sf in ((a, sfa), (b, scales(1, 2)))]
    deep_gemm.m_grouped_gemm_fp8_fp8_bf16_nt_masked(*sides, grouped, np.array([8, 8], np.int32), 8)
    np.testing.assert_array_equal(grouped[0], rounded((x * wide(sfa, 1)) @ (y * wide(wide(sides[1][1][0], 0), 1)).T))
    assert sys.modules["dodona.compat.deep_gemm.jit_kernels.utils"].get_m_alignment_for_contiguous_layout() == 128


def test_an_argument_too_few_is_named():
    with pytest.raises(TypeError, match="^einsum: missing a required argument: 'd'"):
        deep_gemm.einsum("bhr,hdr->bhd", bf16(4, 3, 32), bf16(3, 8, 32))


BAD = {
    "a word": ("einsum", lambda: ("ab,bc->ac", bf16(2, 2), bf16(2, 2), room(2, 2)), "expr"),
    "a head too few": ("einsum", lambda: ("bhr,hdr->bhd", bf16(4, 3, 32), bf16(2, 8, 32), room(4, 3, 8)), "b "),
    "no array": ("einsum", lambda: ("bhr,hdr->bhd", None, bf16(2, 8, 32), room(4, 3, 8)), "a "),
    "d in fp32": ("einsum", lambda: ("bhr,hdr->bhd", bf16(4, 3, 32), bf16(3, 8, 32), np.ones((4, 3, 8), np.float32)), "d "),
    "no scales": ("fp8_einsum", lambda: ("bhr,hdr->bhd", codes(4, 2, 128)[0], (codes(2, 8, 128)[0], scales(2, 1, 1)), room(4, 2, 8)), "a "),
    "scales of another head": (
        "fp8_einsum",
        lambda: ("bhr,hdr->bhd", (codes(4, 2, 128)[0], scales(4, 3, 1)), (codes(2, 8, 128)[0], scales(2, 1, 1)), room(4, 2, 8)),
        "scales of a",
    ),
    "no c": ("k_grouped_fp8_gemm_tn_contiguous", lambda: (*in_groups()[:2], in_groups()[2], KS, np.array(KS, np.int32)), "c "),
    "other sizes": ("k_grouped_fp8_gemm_tn_contiguous", lambda: (*in_groups()[:2], in_groups()[2], [128, 128, 0], None, in_groups()[2]), "a "),
    "no sizes": ("k_grouped_fp8_gemm_tn_contiguous", lambda: (*in_groups()[:2], in_groups()[2], None, None, in_groups()[2]), "ks_cpu"),
    "no ends": ("k_grouped_fp8_gemm_tn_contiguous", lambda: (*in_groups()[:2], in_groups()[2], KS, None, in_groups()[2], (1, 1, 128), "mn", True), "grouped_layout"),
    "c of another type": ("cublaslt_gemm_nt", lambda: (bf16(4, 32), bf16(8, 32), room(4, 8), np.ones((4, 8), np.float32)), "c "),
    "another K": ("cublaslt_gemm_nt", lambda: (bf16(4, 32), bf16(8, 64), room(4, 8)), "b "),
    "words": ("bf16_gemm_nt", lambda: (np.ones((4, 32), np.int32), bf16(8, 32), np.ones((4, 8), np.float32)), "a "),
}


@pytest.mark.parametrize("what", BAD)
def test_what_does_not_fit_is_refused_before_anything_is_written(what):
    name, make, argument = BAD[what]
    given = make()
    kept = [value.copy() if isinstance(value, np.ndarray) else value for value in given]
    with pytest.raises(compat.Refused, match=f"^{name}: {argument}"):
        getattr(deep_gemm, name)(*given)
    for value, before in zip(given, kept):
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(value, before)
