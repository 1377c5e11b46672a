"""What the packages have that is no op of its own: signatures are upstream's, numbers those of the formula."""

import inspect
import math
import types

import numpy as np
import pytest

import dodona
from dodona import compat
from dodona.compat import flashinfer
from dodona.compat._upstream import Named, signature_of

PARTS = ("deep_gemm.", "flash_mla.", "flashinfer.deep_gemm.", "flashinfer.fused_moe.fused_routing", "flashinfer.gemm.", "flashinfer.quantization.", "flashinfer.norm.", "flashinfer.page.", "flashinfer.prefill.", "flashinfer.decode.", "flashinfer.rope.", "flashinfer.topk.", "flashinfer.trtllm_low")
OWN = [
    (package, place)
    for package in compat.PACKAGES
    for place, made in compat._package(package).own.items()
    if place.startswith(PARTS) and isinstance(made, types.FunctionType) and compat._package(package).record.find(*place.rpartition(".")[::2])
]


@pytest.mark.parametrize("package, place", OWN)
def test_what_is_our_own_takes_upstreams_parameters(package, place):
    """By position and by name, with their defaults; what is ours stands behind, and is never asked for."""
    found = compat._package(package)
    theirs = list(signature_of(found.record.find(*place.rpartition(".")[::2])[2]).parameters.values())
    if theirs and theirs[0].kind is theirs[0].VAR_POSITIONAL:  # whose names nothing says
        return
    theirs = [p for p in theirs if p.kind is p.POSITIONAL_OR_KEYWORD]
    ours = [p for p in inspect.signature(found.own[place]).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert [p.name for p in ours][: len(theirs)] == [p.name for p in theirs]
    newer = signature_of(found.record.later[place]).parameters if place in found.record.later else {}
    beyond = {name: p.default for name, p in newer.items()}
    assert all(p.name in newer and p.default == beyond[p.name] for p in ours[len(theirs) :])
    for mine, wanted in zip(ours, theirs):
        assert str(mine.default) == wanted.default.text if isinstance(wanted.default, Named) else mine.default == wanted.default


# ---- rotations ----


def rotated(x, positions, width, theta, interleave, frequency=None):
    """By the formula, in double."""
    half = width // 2
    angle = np.outer(positions, theta ** (-np.arange(half) / half) if frequency is None else frequency)[:, None, :]
    out = x.astype(np.float64)
    first, second = (out[..., :width:2], out[..., 1:width:2]) if interleave else (out[..., :half], out[..., half:width])
    a, b = first * np.cos(angle) - second * np.sin(angle), second * np.cos(angle) + first * np.sin(angle)
    done = out.copy()
    if interleave:
        done[..., :width:2], done[..., 1:width:2] = a, b
    else:
        done[..., :half], done[..., half:width] = a, b
    return done


def heads(rows=7, count=3, size=16):
    return np.random.default_rng(rows).standard_normal((rows, count, size)).astype(np.float16)


BOUNDS, OFFSETS = np.array([0, 4, 4, 7], np.int32), np.array([3, 5, 90], np.int32)
PLACES = np.array([3, 4, 5, 6, 90, 91, 92], np.int32)


@pytest.mark.parametrize("interleave", [False, True])
@pytest.mark.parametrize("width", [None, 8])
@pytest.mark.parametrize("by_number", [False, True])
def test_rotations_compute_their_angles(by_number, width, interleave):
    q, k = heads(), heads(count=2)
    where = (PLACES,) if by_number else (BOUNDS, OFFSETS)
    name = "apply_rope_pos_ids" if by_number else "apply_rope"
    q_rope, k_rope = getattr(flashinfer, name)(q, k, *where, width, interleave, 2, 1e4)
    for given, found in ((q, q_rope), (k, k_rope)):
        frequency = 1e4 ** (-2 * np.arange((width or 16) // 2) / (width or 16)) / 2
        assert np.allclose(found.astype(np.float64), rotated(given, PLACES, width or 16, 1e4, interleave, frequency), atol=2e-3)
    written, keys = q.copy(), k.copy()
    assert getattr(flashinfer, f"{name}_inplace")(written, keys, *where, width, interleave, 2, 1e4) is None
    assert written.tobytes() == q_rope.tobytes() and keys.tobytes() == k_rope.tobytes()


def test_llama_31_divides_only_what_turns_seldom():
    """Pairs that turn fewer than once in the old context by the scale, those that turn more than four times not, those in between partly."""
    q = heads()
    frequency = 5e5 ** (-2 * np.arange(8) / 16)
    for i, plain in enumerate(frequency.copy()):
        wavelength = 2 * math.pi / plain
        if wavelength > 8192:
            frequency[i] = plain / 8
        elif wavelength >= 8192 / 4:
            smooth = (8192 / wavelength - 1) / 3
            frequency[i] = (1 - smooth) * plain / 8 + smooth * plain
    for found in (flashinfer.apply_llama31_rope(q, q, BOUNDS, OFFSETS), flashinfer.apply_llama31_rope_pos_ids(q, q, PLACES)):
        assert np.allclose(found[0].astype(np.float64), rotated(q, PLACES, 16, 5e5, False, frequency), atol=2e-3)


@pytest.mark.parametrize(
    "changes, told",
    [
        ({"indptr": np.array([0, 4, 6], np.int32)}, "indptr is .*expected to rise from 0 to 7"),
        ({"indptr": None}, "indptr is None, expected int32 or int64"),
        ({"offsets": np.zeros(3, np.float32)}, "offsets is float32"),
        ({"q": None}, "q is None, expected"),
        ({"k": np.zeros((7, 2, 8), np.float16)}, r"k has shape \[7, 2, 8\], expected"),
        ({"rotary_dim": 7}, "rotary_dim is 7, expected an even number up to 16"),
        ({"rope_theta": -1.0}, "rope_theta is -1.0, expected a positive number"),
        ({"rope_scale": "1"}, "rope_scale is '1', expected a positive number"),
    ],
)
def test_rotations_name_what_does_not_fit(changes, told):
    with pytest.raises(compat.Refused, match=f"^apply_rope: {told}"):
        flashinfer.apply_rope(**{"q": heads(), "k": heads(count=2), "indptr": BOUNDS, "offsets": OFFSETS, **changes})


# ---- norms ----


def e4m3(values):
    return dodona.as_dtype(np.zeros(values.shape, np.uint8), "f8_e4m3")


def test_norms_are_quantized_over_their_scale():
    rng = np.random.default_rng(3)
    x, residual, weight = (rng.standard_normal(shape).astype(np.float16) for shape in ((4, 64), (4, 64), 64))
    wide = np.float32(x), np.float32(weight)
    out, wanted = e4m3(x), e4m3(x)
    flashinfer.norm.rmsnorm_quant(out, x, weight, np.array(0.25, np.float32))
    dodona.sgl_per_tensor_quant_fp8(dodona.rmsnorm(*wide), wanted, np.array([0.25], np.float32), True)
    assert out.array.tobytes() == wanted.array.tobytes() and out.array.any()
    total = np.float32(x) + np.float32(residual)
    kept = residual.copy()
    flashinfer.norm.fused_add_rmsnorm_quant(out, x, kept, weight, 0.25)
    dodona.sgl_per_tensor_quant_fp8(dodona.rmsnorm(total, wide[1]), wanted, np.array([0.25], np.float32), True)
    assert out.array.tobytes() == wanted.array.tobytes() and kept.tobytes() == total.astype(np.float16).tobytes()


def test_quantized_norms_name_what_does_not_fit():
    x, weight = np.ones((4, 64), np.float16), np.ones(64, np.float16)
    norm = flashinfer.norm.rmsnorm_quant
    for given, told in (
        ((e4m3(x[:3]), x, weight, 1.0), r"out has shape \[3, 64\], expected \[4, 64\]"),
        ((e4m3(x), x, weight, None), "scale is None, expected a number"),
        ((e4m3(x), x, weight, np.ones(2, np.float32)), r"scale is float32 \[2\]"),
        ((np.zeros((4, 64), np.float32), x, weight, 1.0), "out is f32, offered is float8_e4m3fn"),
        ((e4m3(x), None, weight, 1.0), "input is None, expected an array"),
    ):
        with pytest.raises(compat.Refused, match=f"^rmsnorm_quant: {told}"):
            norm(*given)
    with pytest.raises(compat.Refused, match="^fused_add_rmsnorm_quant: residual is None, expected what input is"):
        flashinfer.norm.fused_add_rmsnorm_quant(e4m3(x), x, None, weight, 1.0)


def test_members_of_classes_that_are_not_offered_say_so_when_they_are_called():
    from dodona.compat.flashinfer.fused_moe import TrtllmFp8BlockConfig

    with pytest.raises(compat.NotOffered, match="TrtllmFp8BlockConfig is not offered"):
        TrtllmFp8BlockConfig.prepare_activations(1, variant=2)


# ---- draws ----


def test_the_stream_is_curands():
    """Known answers of Philox 4x32-10 (its authors' test vectors: counter and key zero), and any word alone as in a row."""
    from dodona.compat._draws import philox_words

    assert [hex(word) for word in philox_words(0, 1, 0, 4)[0]] == ["0x6627e8d5", "0xe169c58d", "0xbc57ac4c", "0x9b00dbd8"]
    whole = philox_words(2**63 + 5, 3, 0, 23)
    for first in range(11):
        assert (philox_words(2**63 + 5, 3, first, 9) == whole[:, first : first + 9]).all()


def chain(rows=40, steps=4, vocabulary=11, seed=1):
    rng = np.random.default_rng(seed)
    draft, target = rng.random((rows, steps, vocabulary), np.float32), rng.random((rows, steps + 1, vocabulary), np.float32)
    return draft / draft.sum(-1, keepdims=True), rng.integers(0, vocabulary, (rows, steps)).astype(np.int32), target / target.sum(-1, keepdims=True)


def by_the_rule(draft, ids, target, seed, offset):
    """One row after the other, one number after the other."""
    from dodona.compat._draws import uniforms

    rows, steps, _ = draft.shape
    tokens, accepted, emitted = np.full((rows, steps + 1), -1), [], []
    for row in range(rows):
        numbers = iter(uniforms(seed, rows, offset, steps + 2)[row])
        position = steps
        for i in range(steps):
            if not next(numbers) * draft[row, i, ids[row, i]] < target[row, i, ids[row, i]]:
                position = i
                break
            tokens[row, i] = ids[row, i]
        count = position
        for i in range(position, steps):
            count += next(numbers) * draft[row, i, ids[row, i]] < target[row, i, ids[row, i]]
        left = np.maximum(target[row, position] - (draft[row, position] if position < steps else 0), 0).astype(np.float64)
        tokens[row, position] = np.argmax(left.cumsum() > next(numbers) * left.cumsum()[-1])
        accepted.append(count)
        emitted.append(position)
    return tokens, accepted, emitted


@pytest.mark.parametrize("offset", [0, 6])
def test_chains_of_drafts_are_taken_by_the_stream(offset):
    given = chain()
    accepted, emitted = np.ones(40, np.int32), np.zeros(40, np.int32)
    tokens, a, e = flashinfer.chain_speculative_sampling(*given, accepted, emitted, seed=7, offset=offset)
    wanted = by_the_rule(*given, 7, offset)
    assert (tokens == wanted[0]).all() and (a - 1 == wanted[1]).all() and (e == wanted[2]).all() and a is accepted
    assert 0 < e.max() and e.min() < 4 and tokens.dtype == np.int32


def test_a_target_that_is_certain_is_what_comes_out():
    draft, ids, target = chain()
    sure = np.zeros_like(target)
    last = np.full((40, 1), 3, np.int64)
    np.put_along_axis(sure, np.concatenate([ids, last], 1)[..., None], 1, 2)
    tokens, accepted, emitted = flashinfer.sampling.chain_speculative_sampling(draft, ids, sure)
    assert (tokens[:, :4] == ids).all() and (tokens[:, 4] == 3).all() and (accepted == 4).all() and (emitted == 4).all()


def test_chains_name_what_does_not_fit():
    draft, ids, target = chain()
    for given, told in (
        ((draft, ids, target[:, :4]), r"target_probs is float32 \[40, 4, 11\], expected probabilities \[40, 5, 11\]"),
        ((draft, ids + 11, target), "draft_token_ids holds .*expected tokens below 11"),
        ((draft, ids[:, :3], target), r"draft_token_ids is int32 \[40, 3\]"),
        ((None, ids, target), "draft_probs is None"),
        ((draft, ids, target, np.zeros(3, np.int32)), r"maybe_output_accepted_token_num is int32 \[3\], expected int32 \[40\]"),
    ):
        with pytest.raises(compat.Refused, match=f"^chain_speculative_sampling: {told}"):
            flashinfer.chain_speculative_sampling(*given)


def test_tokens_by_their_logits_have_the_softmaxs_distribution():
    logits = np.log(np.array([[0.5, 0.25, 0.125, 0.125]], np.float32))
    samples = flashinfer.sampling_from_logits(logits, np.zeros(40000, np.int32), seed=3, offset=0)
    assert np.allclose(np.bincount(samples, minlength=4) / 40000, [0.5, 0.25, 0.125, 0.125], atol=0.01)
    for wrong in (None, np.zeros(4, np.float32), np.zeros((1, 4), np.int32)):
        with pytest.raises(compat.Refused, match="^sampling_from_logits: logits is .*expected logits"):
            flashinfer.sampling_from_logits(wrong)


# ---- pages ----

PAGES = {"kv_indices": np.array([4, 1, 3, 0], np.int32), "kv_indptr": np.array([0, 2, 2, 4], np.int32)}


def test_lengths_and_places_of_tokens_in_pages():
    lengths = flashinfer.get_seq_lens(PAGES["kv_indptr"], np.array([3, 0, 8], np.int32), 8)
    assert lengths.tolist() == [11, 0, 16] and lengths.dtype == np.int32
    requests, places = flashinfer.get_batch_indices_positions(np.array([0, 2, 2, 5], np.int32), lengths, 6)
    assert requests.tolist() == [0, 0, 2, 2, 2, -1] and places.tolist() == [9, 10, 13, 14, 15, 0]
    mine = np.full(6, 7, np.int32), np.full(6, 7, np.int32)
    found = flashinfer.get_batch_indices_positions(np.array([0, 2, 2, 5], np.int32), lengths, 6, *mine)
    assert found[0] is mine[0] and (mine[0] == requests).all() and (mine[1] == places).all()
    with pytest.raises(compat.Refused, match="^get_batch_indices_positions: append_indptr is .*expected to rise from 0 to at most 4"):
        flashinfer.get_batch_indices_positions(np.array([0, 2, 2, 5], np.int32), lengths, 4)
    with pytest.raises(compat.Refused, match="^get_seq_lens: kv_last_page_len has 2 lengths, expected 3"):
        flashinfer.get_seq_lens(PAGES["kv_indptr"], np.zeros(2, np.int32), 8)


def test_tokens_are_stored_in_the_pages_of_their_requests():
    ckv, kpe = np.zeros((5, 8, 6), np.float16), np.zeros((5, 8, 2), np.float16)
    rows = np.arange(1, 25, dtype=np.float16).reshape(4, 6)
    where = {"batch_indices": np.array([0, 0, 2, -1], np.int32), "positions": np.array([7, 8, 15, 0], np.int32), **PAGES}
    assert flashinfer.append_paged_mla_kv_cache(rows, rows[:, :2], ckv_cache=ckv, kpe_cache=kpe, kv_last_page_len=None, **where) is None
    assert (ckv[4, 7] == rows[0]).all() and (ckv[1, 0] == rows[1]).all() and (ckv[0, 7] == rows[2]).all() and (kpe[0, 7] == rows[2, :2]).all()
    assert np.count_nonzero(ckv) == 18 and np.count_nonzero(kpe) == 6
    heads = rows.reshape(4, 3, 2)
    for layout, pages in (("NHD", np.zeros((5, 2, 8, 3, 2), np.float16)), ("HND", np.zeros((5, 2, 3, 8, 2), np.float16))):
        flashinfer.append_paged_kv_cache(heads, -heads, paged_kv_cache=pages, kv_last_page_len=None, kv_layout=layout, **where)
        keys, values = (pages[:, i] if layout == "NHD" else pages[:, i].swapaxes(1, 2) for i in (0, 1))
        assert (keys[1, 0] == heads[1]).all() and (values[1, 0] == -heads[1]).all() and np.count_nonzero(pages) == 36
    for changes, told in (
        ({"positions": np.array([7, 16, 15, 0], np.int32)}, "positions names a token behind its request's pages"),
        ({"batch_indices": np.array([0, 3, 2, -1], np.int32)}, "batch_indices names request 3"),
        ({"kv_indices": np.array([4, 9, 3, 0], np.int32)}, "kv_indices names page 9 of 5"),
        ({"ckv_cache": ckv[:, :, :5]}, "ckv_cache is float16 .*which does not hold"),
        ({"ckv_cache": None}, "ckv_cache is None"),
        ({"positions": None}, "positions is None"),
    ):
        with pytest.raises(compat.Refused, match=f"^append_paged_mla_kv_cache: {told}"):
            flashinfer.append_paged_mla_kv_cache(rows, rows[:, :2], **{"ckv_cache": ckv, "kpe_cache": kpe, "kv_last_page_len": None, **where, **changes})


def test_keys_are_rotated_and_quantized_into_pages():
    rng = np.random.default_rng(2)
    wide = lambda *shape: rng.standard_normal(shape).astype(np.float16)
    q_rope, q_nope, k_rope, k_nope, angles = wide(4, 3, 8), wide(4, 3, 16), wide(4, 8), wide(4, 16), rng.standard_normal((20, 8)).astype(np.float32)
    where = {"batch_indices": np.array([0, 0, 2, 2], np.int32), "positions": np.array([7, 8, 14, 15], np.int32), **PAGES}
    places = np.array([7, 8, 14, 15], np.int32)
    ckv, kpe = np.zeros((5, 8, 16), np.uint8), np.zeros((5, 8, 8), np.uint8)
    call = (q_rope, k_rope, q_nope, k_nope)
    wanted = flashinfer.rope_quantize_fp8(*call, angles, places, quant_scale_q=2.0, quant_scale_kv=0.5)
    codes = [np.asarray(getattr(part, "array", part)).view(np.uint8) for part in wanted]
    caches = tuple(np.zeros_like(cache).view(np.asarray(getattr(wanted[0], "array", wanted[0])).dtype) for cache in (ckv, kpe))
    q, rest = flashinfer.rope.rope_quantize_fp8_append_paged_kv_cache(
        *call, None, angles, places, caches, quant_scale_q=2.0, quant_scale_kv=0.5, page_size=8, **where, quantize_dtype="f8_e4m3"
    )
    assert np.asarray(q).view(np.uint8).tobytes() == codes[0].tobytes() and np.asarray(rest).view(np.uint8).tobytes() == codes[2].tobytes()
    for token, (page, place) in enumerate(((4, 7), (1, 0), (0, 6), (0, 7))):
        assert (caches[1].view(np.uint8)[page, place] == codes[1][token]).all() and (caches[0].view(np.uint8)[page, place] == codes[3][token]).all()
    with pytest.raises(compat.Refused, match="page_size is 16, where pages hold 8 tokens"):
        flashinfer.rope.rope_quantize_fp8_append_paged_kv_cache(*call, None, angles, places, caches, **where)


def test_keys_may_have_another_width_than_queries():
    rng = np.random.default_rng(3)
    q_rope, q_nope, k_rope, angles = (rng.standard_normal(shape).astype(np.float16) for shape in ((4, 3, 8), (4, 3, 16), (4, 8), (20, 8)))
    k_nope, places, angles = rng.standard_normal((4, 24)).astype(np.float16), np.arange(4, dtype=np.int32), angles.astype(np.float32)
    raw = lambda parts: [np.asarray(getattr(part, "array", part)).view(np.uint8) for part in parts]
    found = raw(flashinfer.rope_quantize_fp8(q_rope, k_rope, q_nope, k_nope, angles, places, quant_scale_kv=0.5))
    for columns in (slice(0, 16), slice(8, 24)):
        wanted = raw(flashinfer.rope_quantize_fp8(q_rope, k_rope, q_nope, np.ascontiguousarray(k_nope[:, columns]), angles, places, quant_scale_kv=0.5))
        assert all((found[i] == wanted[i]).all() for i in range(3)) and (found[3][:, columns] == wanted[3]).all()


# ---- one request ----


def test_one_request_is_the_ragged_kernels():
    rng = np.random.default_rng(5)
    q, k, v = (rng.standard_normal(shape).astype(np.float16) for shape in ((5, 4, 192), (9, 2, 192), (9, 2, 128)))
    bounds = [np.array([0, count], np.int32) for count in (5, 9)]
    for causal in (False, True):
        wanted = dodona.batch_prefill_with_ragged_kv_cache(q, k, v, *bounds, causal=causal, sm_scale=0.05, return_lse=True)
        out, lse = flashinfer.single_prefill_with_kv_cache(q, k, v, causal=causal, sm_scale=0.05, return_lse=True)
        assert out.tobytes() == wanted[0].tobytes() and lse.tobytes() == wanted[1].tobytes()
        turned = [np.ascontiguousarray(part.swapaxes(0, 1)) for part in (k, v)]
        alone = flashinfer.single_prefill_with_kv_cache(q, *turned, causal=causal, sm_scale=0.05, kv_layout="HND")
        assert alone.tobytes() == out.tobytes()


def test_one_query_is_the_last_one_of_a_prompt():
    random = np.random.default_rng(9)
    q, k, v = (random.standard_normal(shape).astype(np.float16) for shape in ((3, 4, 128), (20, 2, 128), (20, 2, 128)))
    for how in ({}, {"window_left": 5}, {"logits_soft_cap": 2.0}):
        whole = flashinfer.single_prefill_with_kv_cache(q, k, v, causal=True, sm_scale=0.1, return_lse=True, **how)
        one = flashinfer.single_decode_with_kv_cache(q[2], k, v, sm_scale=0.1, return_lse=True, **how)
        assert one[0].shape == (4, 128) and one[1].shape == (4,)
        np.testing.assert_allclose(one[0].astype(np.float32), whole[0][2].astype(np.float32), atol=2e-3)
        np.testing.assert_allclose(one[1], whole[1][2], atol=1e-5)
        assert flashinfer.single_decode_with_kv_cache(q[2], k, v, sm_scale=0.1, **how).tobytes() == one[0].tobytes()
    for changes, told in (({"q": q}, "q has shape .3, 4, 128., expected an array of 2"), ({"q_scale": np.ones(2)}, "q_scale has shape .2., expected one number"), ({"k": k[:, :, :64]}, ".*k has shape")):
        with pytest.raises(compat.Refused, match=f"^single_decode_with_kv_cache: {told}"):
            flashinfer.single_decode_with_kv_cache(**{"q": q[2], "k": k, "v": v, **changes})


@pytest.mark.parametrize(
    "changes, told",
    [
        ({"q": None}, "q is None, expected an array of 3 dimensions"),
        ({"kv_layout": "DNH"}, "kv_layout is 'DNH', expected NHD or HND"),
        ({"scale_k": 2.0}, "scale_k is given, offered is None"),
        ({"k_scale": "two"}, "k_scale is 'two', expected one number"),
        ({"custom_mask": np.ones(8, bool)}, "custom_mask has 8 elements, expected 9"),
        ({"packed_custom_mask": np.ones(1, np.uint8)}, "packed_custom_mask has 1 bytes, expected 2"),
        ({"pos_encoding_mode": "ALIBI"}, "pos_encoding_mode is ALIBI, offered are NONE and ROPE_LLAMA"),
        ({"o_dtype": np.dtype(np.float32)}, "o_dtype is float32, offered is that of q"),
    ],
)
def test_what_one_request_does_not_take_is_named(changes, told):
    x = np.zeros((3, 2, 128), np.float16)
    with pytest.raises(compat.Refused, match=f"^single_prefill_with_kv_cache: {told}"):
        flashinfer.single_prefill_with_kv_cache(**{"q": x, "k": x, "v": x, **changes})


def test_what_tests_ask_of_the_machine_is_answered():
    from dodona.compat.flashinfer import cutile, utils

    assert cutile.is_cuda_tile_available() is False and utils.is_sm12x_supported("cuda") is False and utils.is_sm100a_supported("cuda") is True


@pytest.mark.parametrize("mode", [None, "golden"])
def test_states_of_different_numbers_are_merged_as_each_number_alone(mode):
    from dodona.compat.flashinfer.triton import cascade

    random = np.random.default_rng(4)
    v, s = random.standard_normal((7, 2, 64)).astype(np.float16), random.standard_normal((7, 2)).astype(np.float32)
    s[3] = -np.inf
    merged, sums = cascade.variable_length_merge_states(v, s, np.array([0, 2, 2, 3, 4, 7], np.int32), mode=mode)
    for t, (a, b) in enumerate(((0, 2), (2, 3), (4, 7))):
        token = (0, 2, 4)[t]
        wanted = dodona.merge_states(v[None, a:b], s[None, a:b], mode=mode)
        assert merged[token].tobytes() == np.asarray(wanted[0])[0].tobytes() and sums[token].tobytes() == np.asarray(wanted[1])[0].tobytes()
    for token in (1, 3):  # none, and one without keys
        assert not merged[token].any() and (sums[token] == -5e4).all()
    assert cascade.merge_states(v[None, :2], s[None, :2])[0].tobytes() == merged[:1].tobytes() or mode


@pytest.mark.parametrize(
    "changes, told",
    [
        ({"indptr": np.array([0, 5, 4])}, r"indptr is \[0, 5, 4\], expected offsets that do not fall and stay within 4"),
        ({"indptr": np.array([0, 5])}, r"indptr is \[0, 5\], expected offsets"),
        ({"indptr": np.zeros(2, np.float32)}, "indptr is f32, expected i32 or i64"),
        ({"s": np.zeros((4, 3), np.float32)}, r"s has shape \[4, 3\], expected \[4, 2\]"),
        ({"v": np.zeros((4, 2, 8), np.float32)}, "v is f32, expected bf16 or f16"),
    ],
)
def test_what_states_do_not_fit_is_named(changes, told):
    from dodona.compat.flashinfer.triton import cascade

    given = {"v": np.zeros((4, 2, 8), np.float16), "s": np.zeros((4, 2), np.float32), "indptr": np.array([0, 4])}
    with pytest.raises(compat.Refused, match=f"^variable_length_merge_states: {told}"):
        cascade.variable_length_merge_states(**{**given, **changes})
