"""Caches of NVFP4 in FlashInfer's place: numbers by the formula in double precision, and the nearest codes by looking at all of them."""

import numpy as np
import pytest

from dodona import compat
from dodona.compat import flashinfer

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
FACTOR = np.array([0.3], np.float32)


def e4m3(codes):
    codes = np.asarray(codes).astype(int)
    high, low = codes >> 3 & 15, codes & 7
    return np.where(high == 0, low * 2.0**-9, (8 + low) * 2.0 ** (high - 10.0))


def unpacked(codes):
    halves = np.stack([codes & 15, codes >> 4], axis=-1).reshape(*codes.shape[:-1], -1)
    return np.where(halves & 8, -1, 1) * E2M1[halves & 7]


def numbers(codes, scales, factor):
    return unpacked(codes) * np.repeat(e4m3(scales), 16, axis=-1) * float(factor)


def rows(*shape, seed=3):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float16)


def near(given, codes, scales, factor):
    """Each code is among the nearest of its block's scale, which is among the nearest of a sixth of the largest magnitude."""
    wide = given.astype(np.float64).reshape(*scales.shape, 16)
    wanted = np.abs(wide).max(-1) / 6 / float(factor)
    every = e4m3(np.arange(127))
    assert np.allclose(np.abs(e4m3(scales) - wanted), np.abs(wanted[..., None] - every).min(-1), rtol=0, atol=1e-6 * 448)
    quotient = np.abs(wide) / (e4m3(scales) * float(factor))[..., None]
    found = np.abs(unpacked(codes)).reshape(wide.shape)
    assert np.allclose(np.abs(found - quotient), np.abs(quotient[..., None] - E2M1).min(-1), rtol=0, atol=1e-6)
    assert (np.sign(unpacked(codes).reshape(wide.shape)) * np.sign(wide) >= 0).all()


def test_rows_are_quantized_to_the_nearest_codes_and_read_back():
    given = rows(5, 64)
    given[1, :16] = 0
    codes, scales = flashinfer.nvfp4_kv_quantize(given, FACTOR)
    assert codes.dtype == np.uint8 and codes.shape == (5, 32) and scales.dtype == np.uint8 and scales.shape == (5, 4)
    assert scales[1, 0] == 0 and not codes[1, :8].any()
    near(given[2:], codes[2:], scales[2:], FACTOR[0])
    back = flashinfer.nvfp4_kv_dequantize(codes, scales, FACTOR, "float16")
    assert np.array_equal(back, numbers(codes, scales, np.float32(0.3)).astype(np.float16))


def test_ties_go_to_the_even_code():
    """A block whose largest is 6 under the factor 1 has the scale 1: its numbers are the quotients."""
    given = np.array([[0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, 6, -0.25, -0.75, -1.25, -1.75, -2.5, -3.5, -5, -6]], np.float16)
    for codes in (flashinfer.nvfp4_kv_quantize(given, np.ones(1, np.float32))[0], appended(given[None], 1.0)[0][0, 0, :1]):
        assert np.array_equal(unpacked(codes), [[0, 1, 1, 2, 2, 4, 4, 6, 0, -1, -1, -2, -2, -4, -4, -6]])


def appended(keys, scale, slots=None, pages=2, page=3):
    """Keys [tokens, heads, K] as they lie in pages NHD, from the first slot on."""
    caches = [np.full((pages, page, keys.shape[1], keys.shape[2] // 2), 0x77, np.uint8) for _ in range(2)]
    import dodona

    scales = [np.full((pages, page, keys.shape[1], keys.shape[2] // 16), 0x11, np.uint8) for _ in range(2)]
    slots = np.arange(len(keys)) if slots is None else slots
    flashinfer.nvfp4_quantize_append_paged_kv_cache_with_slot_mapping(
        keys, keys, slots, tuple(caches), tuple(dodona.as_dtype(part, "f8_e4m3") for part in scales), scale, np.array([2 * scale], np.float32)
    )
    return caches[0], scales[0], caches[1], scales[1]


def test_slots_are_written_and_the_others_stay():
    keys = rows(4, 2, 32)
    codes, scales, values, of_values = appended(keys, 0.5, np.array([4, -1, 6, 0]))
    for at, row in ((4, 0), (0, 3)):
        near(keys[row], codes.reshape(6, 2, -1)[at], scales.reshape(6, 2, -1)[at], 0.5)
        near(keys[row], values.reshape(6, 2, -1)[at], of_values.reshape(6, 2, -1)[at], 1.0)
    rest = [1, 2, 3, 5]
    assert (codes.reshape(6, -1)[rest] == 0x77).all() and (scales.reshape(6, -1)[rest] == 0x11).all()


@pytest.mark.parametrize("heads_first", [False, True])
def test_requests_are_written_by_their_pages_and_read_back(heads_first):
    import dodona

    keys = rows(5, 2, 32)
    turn = (lambda x: x.swapaxes(1, 2)) if heads_first else (lambda x: x)
    layout = "HND" if heads_first else "NHD"
    caches = [turn(np.zeros((4, 2, 2, 16), np.uint8)) for _ in range(2)]
    scales = [turn(np.zeros((4, 2, 2, 2), np.uint8)) for _ in range(2)]
    typed = tuple(dodona.as_dtype(part, "f8_e4m3") for part in scales)
    requests, positions = np.array([0, 0, 0, 1, 1], np.int32), np.array([0, 1, 2, 0, 1], np.int32)
    indices, begins = np.array([3, 1, 0], np.int32), np.array([0, 2, 3], np.int32)
    flashinfer.nvfp4_quantize_append_paged_kv_cache(keys, -keys, requests, positions, tuple(caches), typed, indices, begins, np.array([1, 2], np.int32), 0.5, 0.25, layout)
    k, v = (np.full((2, 4, 2, 32), 99, np.float16) for _ in range(2))
    table, lengths = np.array([[3, 1], [0, 77]]), np.array([3, 2], np.int32)
    flashinfer.nvfp4_kv_dequantize_paged(tuple(caches), typed, table, lengths, np.array([0.5], np.float32), np.array([0.25], np.float32), k, v, layout)
    read = np.concatenate([k[0, :3], k[1, :2]])
    assert (k[0, 3] == 99).all() and (k[1, 2:] == 99).all()
    codes, of = flashinfer.nvfp4_kv_quantize(keys.reshape(10, 32), np.array([0.5], np.float32))  # of a power of two both kernels say the same
    assert np.array_equal(read.reshape(10, 32), numbers(codes, of, 0.5).astype(np.float16))
    assert np.allclose(np.concatenate([v[0, :3], v[1, :2]]), -keys, atol=0.6)


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf")])
def test_scales_that_are_none_are_refused(scale):
    with pytest.raises(compat.Refused, match="positive finite global decode scale"):
        appended(rows(1, 1, 16), scale)


def test_what_does_not_fit_is_refused():
    with pytest.raises(compat.Refused, match="divisible by 16"):
        flashinfer.nvfp4_kv_quantize(rows(2, 24), FACTOR)
    with pytest.raises(compat.Refused, match="scalar tensor"):
        flashinfer.nvfp4_kv_quantize(rows(2, 32), np.ones(2, np.float32))
    with pytest.raises(compat.Refused, match="block_scales"):
        flashinfer.nvfp4_kv_dequantize(np.zeros((2, 16), np.uint8), np.zeros((2, 3), np.uint8), FACTOR)
