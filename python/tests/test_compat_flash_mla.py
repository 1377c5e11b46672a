"""FlashMLA's functions in upstream's place: metadata that make themselves, sinks, lengths and a second cache against the ops that they are."""

import numpy as np
import pytest

import dodona
from dodona import compat
from dodona.compat import flash_mla

DENSE = dodona.gen("flash_mla_with_kvcache B=2 Q=2 N=3 pages=6 W=3 parts=7 --attr softmax_scale=0.07 --attr causal=true --dtype q=f16 --seed 1")
SPARSE = dodona.gen("flash_mla_sparse_decode B=2 Q=1 N=3 pages=2 topk=128 parts=3 --attr softmax_scale=0.0721687836 --seed 2")
PREFILL = dodona.gen("flash_mla_sparse_fwd T=2 N=3 S=70 topk=128 --attr sm_scale=0.0721687836 --attr logarithms=natural --seed 3")


def raw(value):
    return np.asarray(getattr(value, "array", value))


def numbers(values):
    values = raw(values)
    return (values.view(np.uint16).astype(np.uint32) << 16).view(np.float32) if values.dtype != np.float16 else values.astype(np.float32)


def dense(meta, **changes):
    a = DENSE.arguments()
    return flash_mla.flash_mla_with_kvcache(
        **{"q": a["q"], "k_cache": a["k_cache"], "block_table": a["block_table"], "cache_seqlens": a["cache_seqlens"], "head_dim_v": 512,
           "tile_scheduler_metadata": meta, "softmax_scale": 0.07, "causal": True, **changes}
    )  # fmt: skip


def sparse(**changes):
    a = SPARSE.arguments()
    given = {"q": a["q"], "k_cache": raw(a["k_cache"]), "indices": a["indices"], "softmax_scale": 0.0721687836, "is_fp8_kvcache": True}
    meta, splits = flash_mla.get_mla_metadata()
    return flash_mla.flash_mla_with_kvcache(
        **{"block_table": None, "cache_seqlens": None, "head_dim_v": 512, "tile_scheduler_metadata": meta, "num_splits": splits, **given, **changes}
    )


def test_metadata_are_made_by_the_first_call_and_kept():
    meta, splits = flash_mla.get_mla_metadata(np.zeros(2, np.int32), 6, 1)
    assert splits is None and not meta.have_initialized
    out, lse = dense(meta)
    wanted = DENSE.run()
    assert np.allclose(numbers(out), numbers(wanted["out"]), atol=1e-3) and np.allclose(lse, wanted["softmax_lse"], atol=1e-4)
    kept = meta.tile_scheduler_metadata
    assert meta.have_initialized and raw(dense(meta)[0]).tobytes() == raw(out).tobytes() and meta.tile_scheduler_metadata is kept
    with pytest.raises(AssertionError, match="tile_scheduler_metadata was made by a call with causal=True, this has False"):
        dense(meta, causal=False)


def test_metadata_of_versions_before_are_a_pair():
    a = DENSE.arguments()
    out, lse = dense(a["tile_scheduler_metadata"], num_splits=a["num_splits"])
    assert raw(out).tobytes() == raw(DENSE.run()["out"]).tobytes()


@pytest.mark.parametrize("mode", [None, "golden", "hopper"])
def test_heads_of_keys_have_each_their_share_of_the_queries_heads(mode):
    a = DENSE.arguments()
    q, cache = raw(a["q"]).view(np.float16), raw(a["k_cache"]).view(np.float16)
    other = cache[:, ::-1] * np.float16(0.5)
    both = np.concatenate([cache, other], axis=2)
    of_heads = np.concatenate([q, q[:, :, ::-1]], axis=2)
    out, lse = dense(flash_mla.get_mla_metadata()[0], q=of_heads, k_cache=both, mode=mode)
    assert raw(out).shape == (2, 2, 6, 512) and raw(lse).shape == (2, 6, 2)
    cut = dodona.get_mla_metadata(raw(a["cache_seqlens"]), num_q_tokens_per_head_k=6, num_heads_k=2, num_heads_q=6)
    for head, (queries, keys) in enumerate([(q, cache), (np.ascontiguousarray(q[:, :, ::-1]), np.ascontiguousarray(other))]):
        wanted = dense(cut[0], num_splits=cut[1], q=queries, k_cache=keys, mode=mode)
        share = slice(3 * head, 3 * head + 3)
        assert raw(out)[:, :, share].tobytes() == raw(wanted[0]).tobytes() and raw(lse)[:, share].tobytes() == raw(wanted[1]).tobytes()


def test_a_list_of_slots_is_the_sparse_kernel_whatever_the_pages():
    out, lse = sparse()
    wanted = SPARSE.run()
    assert np.allclose(numbers(out), numbers(wanted["out"]), atol=2e-2) and np.allclose(lse, wanted["softmax_lse"], atol=1e-4)
    pages = raw(SPARSE.arguments()["k_cache"]).reshape(4, 32, 1, 656)
    assert raw(sparse(k_cache=pages)[0]).tobytes() == raw(out).tobytes()


def test_only_the_first_slots_of_a_list_count():
    indices = SPARSE.arguments()["indices"].copy()
    indices[0, :, 50:], indices[1, :, 7:] = -1, -1
    assert raw(sparse(topk_length=np.array([50, 7], np.int32))[0]).tobytes() == raw(sparse(indices=indices)[0]).tobytes()
    nothing = sparse(topk_length=np.zeros(2, np.int32))
    assert not numbers(nothing[0]).any() and (raw(nothing[1]) == np.inf).all()


def test_a_second_cache_is_as_if_its_tokens_stood_behind_the_first():
    a = SPARSE.arguments()
    cache, indices = raw(a["k_cache"]), a["indices"]
    second = np.ascontiguousarray(cache[:, ::-1])
    joined = sparse(k_cache=np.concatenate([cache, second]), indices=np.concatenate([indices, np.where(indices < 0, -1, indices + 128)], -1).astype(np.int32))
    apart = sparse(extra_k_cache=second, extra_indices_in_kvcache=indices)
    assert raw(apart[0]).tobytes() == raw(joined[0]).tobytes() and raw(apart[1]).tobytes() == raw(joined[1]).tobytes()


def test_sinks_take_their_share_of_the_output_alone():
    sink = np.array([np.inf, -np.inf, 2.5], np.float32)
    (plain, lse), (out, same) = sparse(), sparse(attn_sink=sink)
    assert raw(lse).tobytes() == raw(same).tobytes()
    share = 1 / (1 + np.exp(sink.astype(np.float64) - np.swapaxes(raw(lse), 1, 2)))
    assert np.allclose(numbers(out), numbers(plain) * share[..., None], rtol=2**-8) and not numbers(out)[:, :, 0].any()


def test_prefill_has_natural_logarithms_lengths_and_sinks():
    a, wanted = PREFILL.arguments(), PREFILL.run()
    given = {"q": a["q"], "kv": a["kv"], "indices": a["indices"], "sm_scale": 0.0721687836}
    for found, name in zip(flash_mla.flash_mla_sparse_fwd(**given), ("out", "max_logits", "lse")):
        assert raw(found).tobytes() == raw(wanted[name]).tobytes()
    short = flash_mla.flash_mla_sparse_fwd(**{**given, "indices": a["indices"][:, :, :30]})
    cut = flash_mla.flash_mla_sparse_fwd(**given, topk_length=np.array([30, 30], np.int32), attn_sink=np.full(3, -np.inf, np.float32))
    assert all(raw(x).tobytes() == raw(y).tobytes() for x, y in zip(short, cut))


@pytest.mark.parametrize(
    "changes, told",
    [
        ({"causal": True}, "causal is True, expected False with indices"),
        ({"is_fp8_kvcache": False}, "is_fp8_kvcache is False"),
        ({"topk_length": np.zeros(3, np.int32)}, r"topk_length is int32 \[3\], expected int32 \[2\]"),
        ({"attn_sink": np.zeros(4, np.float32)}, r"attn_sink is float32 \[4\], expected float32 \[3\]"),
        ({"extra_topk_length": np.zeros(2, np.int32)}, "extra_topk_length is given"),
        ({"extra_k_cache": np.zeros((2, 64, 1, 656), np.uint8)}, "extra_k_cache is given alone, expected extra_k_cache and extra_indices_in_kvcache together"),
        ({"k_cache": np.zeros((2, 64, 1, 584), np.uint8)}, "k_cache has shape .*offered are tokens of 656 bytes"),
        ({"indices": np.zeros((2, 128), np.int32)}, r"indices has shape \[2, 128\], expected an array of 3 dimensions"),
        ({"tile_scheduler_metadata": None}, "tile_scheduler_metadata is None"),
        ({"q": 3}, "q is 3, expected an array"),
    ],
)
def test_what_does_not_fit_is_one_error_that_names_it(changes, told):
    with pytest.raises(compat.Refused, match=f"^flash_mla_with_kvcache: {told}"):
        sparse(**changes)


def test_dense_calls_take_nothing_of_sparse_ones():
    with pytest.raises(compat.Refused, match="attn_sink is given, expected None without indices"):
        dense(flash_mla.get_mla_metadata()[0], attn_sink=np.zeros(3, np.float32))


def test_prefill_of_rows_of_512():
    a = PREFILL.arguments()
    q, kv = (numbers(a[key])[..., :512] for key in ("q", "kv"))
    cut = lambda values: np.ascontiguousarray((values.view(np.uint32) >> 16).astype(np.uint16))
    sink = np.array([-1, 0, np.inf], np.float32)
    out, largest, lse = flash_mla.flash_mla_sparse_fwd(cut(q), cut(kv), raw(a["indices"]), 0.07, 512, sink, mode="golden")
    for token, head in np.ndindex(2, 3):
        rows = raw(a["indices"])[token, 0]
        keys = kv[rows[(rows >= 0) & (rows < len(kv))], 0].astype(np.float64)
        scores = keys @ q[token, head] * 0.07
        power = np.exp(scores - scores.max())
        total = power.sum() + np.exp(sink[head].astype(np.float64) - scores.max())
        assert np.allclose(numbers(out)[token, head], power @ keys / total, atol=2e-2)
        assert np.isclose(raw(largest)[token, head], scores.max(), atol=1e-4)
        assert np.isclose(raw(lse)[token, head], scores.max() + np.log(power.sum()), atol=1e-4)
    with pytest.raises(compat.NotOffered, match="mode is hopper"):
        flash_mla.flash_mla_sparse_fwd(cut(q), cut(kv), raw(a["indices"]), 0.07, mode="hopper")


def short_cache(rng, pages, tokens):
    """Tokens of 512 in e4m3: bytes, and the numbers that they stand for."""
    codes = rng.integers(0, 256, (pages, tokens, 448)).astype(np.uint8)
    codes[(codes & 0x7F) == 0x7F] = 0
    exponents = rng.integers(113, 118, (pages, tokens, 8)).astype(np.uint8)
    rotated = (rng.standard_normal((pages, tokens, 64), np.float32).view(np.uint32) >> 16).astype(np.uint16)
    kept = np.concatenate([codes, rotated.view(np.uint8)], axis=-1)
    cache = np.concatenate([kept.reshape(pages, -1), exponents.reshape(pages, -1)], axis=1).reshape(pages, tokens, 1, 584)
    e4m3 = np.array([(-1.0) ** (c >> 7) * ((c & 7) * 2.0**-9 if not c >> 3 & 15 else (8 + (c & 7)) * 2.0 ** ((c >> 3 & 15) - 10)) for c in range(256)])
    scaled = e4m3[codes].reshape(pages, tokens, 7, 64) * 2.0 ** (exponents[..., :7].astype(int) - 127)[..., None]
    return cache, np.concatenate([scaled.reshape(-1, 448), numbers(rotated).reshape(-1, 64)], axis=1)


@pytest.mark.parametrize("mode", [None, "golden"])
@pytest.mark.parametrize("second", [False, True])
def test_decoding_of_rows_of_512(mode, second):
    rng = np.random.default_rng(5)
    (cache, rows), (other, further) = short_cache(rng, 3, 5), short_cache(rng, 2, 7)
    q = (rng.standard_normal((2, 2, 3, 512), np.float32).view(np.uint32) >> 16).astype(np.uint16)
    lists, extra = rng.integers(-1, 15, (2, 2, 70)).astype(np.int32), rng.integers(-1, 14, (2, 2, 9)).astype(np.int32)
    lists[1, 1], lengths, sink = -1, np.array([70, 33], np.int32), np.array([-np.inf, 0.5, 1e9], np.float32)
    beside = {"extra_k_cache": other, "extra_indices_in_kvcache": extra, "extra_topk_length": np.array([9, 0], np.int32)} if second else {}
    meta, _ = flash_mla.get_mla_metadata()
    out, lse = flash_mla.flash_mla_with_kvcache(
        q, cache, None, None, 512, meta, None, 0.03, indices=lists, is_fp8_kvcache=True, attn_sink=sink, topk_length=lengths, mode=mode, **beside
    )
    assert raw(out).shape == (2, 2, 3, 512) and raw(lse).shape == (2, 3, 2) and meta.have_initialized
    for b, i, head in np.ndindex(2, 2, 3):
        slots = lists[b, i, : lengths[b]]
        keys = rows[slots[slots >= 0]]
        if second and b == 0:
            keys = np.concatenate([keys, further[extra[b, i][extra[b, i] >= 0]]])
        if not len(keys):
            assert raw(lse)[b, head, i] == np.inf and not numbers(out)[b, i, head].any()
            continue
        scores = keys @ numbers(q)[b, i, head].astype(np.float64) * 0.03
        power = np.exp(scores - scores.max())
        assert np.isclose(raw(lse)[b, head, i], scores.max() + np.log(power.sum()), atol=1e-4)
        share = 1 / (1 + np.exp(min(sink[head] - scores.max() - np.log(power.sum()), 700.0)))
        assert np.allclose(numbers(out)[b, i, head], power @ keys / power.sum() * share, atol=2e-2)


def test_decoding_of_rows_of_512_refuses_what_it_does_not_know():
    cache, _ = short_cache(np.random.default_rng(5), 3, 5)
    given = {"q": np.zeros((2, 1, 3, 512), np.uint16), "k_cache": cache, "indices": np.zeros((2, 1, 64), np.int32)}
    with pytest.raises(compat.Refused, match=r"k_cache has shape \[3, 5, 1, 580\], expected tokens of 584 bytes"):
        sparse(**{**given, "k_cache": cache[..., :580]})
    with pytest.raises(compat.Refused, match=r"indices has shape \[1, 1, 64\], expected \[2, 1\] lists"):
        sparse(**{**given, "indices": given["indices"][:1]})
    with pytest.raises(compat.NotOffered, match="mode is hopper"):
        sparse(**given, mode="hopper")
    with pytest.raises(compat.NotOffered, match="q has rows of 192, offered are 576 and 512"):
        sparse(**{**given, "q": np.zeros((2, 1, 3, 192), np.uint16)})


def test_what_is_missing_says_so():
    with pytest.raises(compat.NotOffered, match="_flash_attn_varlen_backward is not offered"):
        flash_mla.flash_mla_interface._flash_attn_varlen_backward()
