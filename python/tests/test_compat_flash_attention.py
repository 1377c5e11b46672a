"""FlashAttention's functions in upstream's place, against softmax written out in NumPy."""

import numpy as np
import pytest

from dodona import compat
from dodona.compat import flashinfer, sgl_kernel  # noqa: F401
from dodona.compat.sgl_kernel.flash_attn import flash_attn_varlen_func, flash_attn_with_kvcache

RANDOM = np.random.default_rng(5)
BOTH = pytest.mark.parametrize("mode", [None, "golden"])


def f16(*shape):
    return RANDOM.standard_normal(shape).astype(np.float16)


def i32(*values):
    return np.array(values, np.int32)


def written_out(q, k, v, scale, causal=False, window=-1, cap=0.0, sinks=None):
    """One request: q [n, N, D], k [m, Nk, D], v [m, Nk, Dv] -> out [n, N, Dv], lse [N, n]."""
    (n, heads, _), (m, key_heads, _) = q.shape, k.shape
    k, v = (np.repeat(part.astype(np.float64), heads // key_heads, 1) for part in (k, v))
    scores = np.einsum("nhd,mhd->hnm", q.astype(np.float64), k) * scale
    if cap:
        scores = cap * np.tanh(scores / cap)
    own, j = np.arange(n)[:, None] + m - n, np.arange(m)[None]
    scores = np.where((j <= own if causal else True) & (j >= own - window if window >= 0 else True), scores, -np.inf)
    powers = np.exp(scores)
    total = powers.sum(-1) + (0 if sinks is None else np.exp(np.asarray(sinks, np.float64))[:, None])
    return np.einsum("hnm,mhd->nhd", powers / total[..., None], v), np.log(total)


def near(found, wanted, lse=False):
    np.testing.assert_allclose(np.asarray(found, np.float64), wanted, atol=2e-5 if lse else 4e-3, rtol=2e-3)


@BOTH
@pytest.mark.parametrize("how", [{}, {"causal": True}, {"window_size": (3, 0)}, {"causal": True, "window_size": (5, -1)}, {"softcap": 1.5}, {"sinks": np.array([0.5, 3, -1, 1], np.float32)}])
def test_requests_one_behind_the_other(how, mode):
    q, k, v = f16(9, 4, 64), f16(30, 2, 64), f16(30, 2, 64)
    cu_q, cu_k = i32(0, 2, 9), i32(0, 10, 30)
    out, lse = flash_attn_varlen_func(q, k, v, cu_q, cu_k, 7, 20, softmax_scale=0.2, return_softmax_lse=True, mode=mode, **how)
    left, right = how.get("window_size", (-1, -1))
    for a, b, c, d in zip(cu_q, cu_q[1:], cu_k, cu_k[1:]):
        wanted = written_out(q[a:b], k[c:d], v[c:d], 0.2, how.get("causal", False) or right == 0, left, how.get("softcap", 0), how.get("sinks"))
        near(out[a:b], wanted[0])
        near(lse[:, a:b], wanted[1], lse=True)
    assert flash_attn_varlen_func(q, k, v, cu_q, cu_k, 7, 20, softmax_scale=0.2, mode=mode, **how).tobytes() == out.tobytes()


def test_rows_that_are_not_used_are_left_out_and_out_is_written():
    q, k, v = f16(8, 2, 128), f16(20, 2, 128), f16(20, 2, 128)
    room = np.full((8, 2, 128), 7, np.float16)
    made, lse = flash_attn_varlen_func(q, k, v, i32(0, 4, 8), i32(0, 10, 20), seqused_q=i32(3, 4), seqused_k=i32(6, 10), causal=True, return_softmax_lse=True, out=room)
    assert made is room and lse.shape == (2, 8)
    near(room[:3], written_out(q[:3], k[:6], v[:6], 128**-0.5, True)[0])
    near(room[4:], written_out(q[4:], k[10:], v[10:], 128**-0.5, True)[0])
    assert not room[3].any() and not lse[:, 3].any()


@BOTH
def test_pages_rows_of_a_cache_and_heads_of_a_query(mode):
    k, v, q = f16(7, 16, 2, 64), f16(7, 16, 2, 64), f16(2, 3, 4, 64)
    table, lengths = i32(5, 2, 0, 6, 1, 3).reshape(2, 3), i32(35, 16)
    out, lse = flash_attn_with_kvcache(q, k, v, cache_seqlens=lengths, page_table=table, causal=True, return_softmax_lse=True, mode=mode)
    assert out.shape == (2, 3, 4, 64) and lse.shape == (2, 4, 3)
    for b in range(2):
        keys, values = (part[table[b]].reshape(-1, 2, 64)[: lengths[b]] for part in (k, v))
        wanted = written_out(q[b], keys, values, 0.125, True)
        near(out[b], wanted[0])
        near(lse[b], wanted[1], lse=True)
    flat = flash_attn_with_kvcache(q.reshape(6, 4, 64), k, v, cache_seqlens=lengths, page_table=table, cu_seqlens_q=i32(0, 3, 6), causal=True, mode=mode)
    assert flat.tobytes() == out.tobytes()
    whole = flash_attn_with_kvcache(q, k, v, cache_seqlens=9, cache_batch_idx=i32(4, 1), cache_leftpad=i32(0, 2), mode=mode)
    near(whole[0], written_out(q[0], k[4, :9], v[4, :9], 0.125)[0])
    near(whole[1], written_out(q[1], k[1, 2:9], v[1, 2:9], 0.125)[0])
    varlen = flash_attn_varlen_func(q.reshape(6, 4, 64), k, v, i32(0, 3, 6), None, seqused_k=lengths, page_table=table, causal=True, mode=mode)
    assert varlen.tobytes() == out.tobytes()


def test_new_keys_go_into_pages_too():
    k, v, q, fresh, more = f16(5, 4, 1, 64), f16(5, 4, 1, 64), f16(2, 2, 2, 64), f16(2, 2, 1, 64), f16(2, 2, 1, 64)
    before, table = (k.copy(), v.copy()), i32(4, 2, 1, 0).reshape(2, 2)
    out = flash_attn_with_kvcache(q, k, v, fresh, more, cache_seqlens=i32(3, 1), page_table=table, causal=True, rotary_seqlens=i32(3, 1))
    for b, length in enumerate((3, 1)):
        keys, values = (np.concatenate([cache[table[b]].reshape(-1, 1, 64)[:length], new[b]]) for cache, new in ((before[0], fresh), (before[1], more)))
        near(out[b], written_out(q[b], keys, values, 0.125, True)[0])
        assert (k[table[b]].reshape(-1, 1, 64)[length : length + 2] == fresh[b]).all()
    assert (k[3] == before[0][3]).all() and (v[4, :3] == before[1][4, :3]).all() and (v[2, 0] == more[0, 1]).all()


def test_new_keys_go_behind_those_in_the_cache():
    k, v, q, fresh, more = f16(2, 12, 1, 64), f16(2, 12, 1, 64), f16(2, 2, 2, 64), f16(2, 2, 1, 64), f16(2, 2, 1, 64)
    before = k.copy(), v.copy()
    out = flash_attn_with_kvcache(q, k, v, fresh, more, cache_seqlens=i32(10, 3), causal=True)
    for b, length in enumerate((10, 3)):
        keys, values = (np.concatenate([cache[b, :length], new[b]]) for cache, new in ((before[0], fresh), (before[1], more)))
        near(out[b], written_out(q[b], keys, values, 0.125, True)[0])
        assert (k[b, length : length + 2] == fresh[b]).all() and (k[b, length + 2 :] == before[0][b, length + 2 :]).all() and (v[b, :length] == before[1][b, :length]).all()


@BOTH
@pytest.mark.parametrize("width", [512, 256])
def test_absorbed_queries_see_latent_rows_as_keys_and_values(mode, width):
    rope, latent = f16(6, 4, 1, 64), f16(6, 4, 1, width)
    q, qv = f16(5, 3, 64), f16(5, 3, width)
    table, lengths = i32(1, 4, 0, 3, 5, 2).reshape(2, 3), i32(9, 12)
    out, lse = flash_attn_with_kvcache(
        q, rope, latent, qv=qv, page_table=table, cache_seqlens=lengths, cu_seqlens_q=i32(0, 2, 5), causal=True, softmax_scale=0.04, return_softmax_lse=True, mode=mode
    )
    assert out.shape == (5, 3, width) and lse.shape == (3, 5)
    for b, (a, c) in enumerate(((0, 2), (2, 5))):
        rows = np.concatenate([latent[table[b]].reshape(-1, 1, width), rope[table[b]].reshape(-1, 1, 64)], -1)[: lengths[b]]
        wanted = written_out(np.concatenate([qv[a:c], q[a:c]], -1), rows, rows[..., :width], 0.04, True)
        near(out[a:c], wanted[0])
        near(lse[:, a:c], wanted[1], lse=True)


@BOTH
def test_absorbed_queries_with_new_rows_left_padding_and_sinks(mode):
    rope, latent, fresh, more = f16(3, 9, 1, 64), f16(3, 9, 1, 512), f16(2, 2, 1, 64), f16(2, 2, 1, 512)
    q, qv, sinks = f16(2, 2, 3, 64), f16(2, 2, 3, 512), np.array([0.5, -3, 2], np.float32)
    row = lambda b, first, last, new: np.concatenate(
        [np.concatenate([latent[b, first:last], more[new]]), np.concatenate([rope[b, first:last], fresh[new]])], -1
    )
    wanted = [written_out(np.concatenate([qv[b], q[b]], -1), row(at, first, last, b), row(at, first, last, b)[..., :512], 0.04, True, sinks=sinks) for b, (at, first, last) in enumerate(((2, 0, 5), (0, 1, 7)))]
    out, lse = flash_attn_with_kvcache(
        q, rope, latent, fresh, more, qv=qv, cache_seqlens=i32(5, 7), cache_batch_idx=i32(2, 0), cache_leftpad=i32(0, 1), causal=True, softmax_scale=0.04,
        sinks=sinks, return_softmax_lse=True, mode=mode,
    )  # fmt: skip
    for b in range(2):
        near(out[b], wanted[b][0])
        near(lse[b], wanted[b][1], lse=True)
    assert (rope[2, 5:7] == fresh[0]).all() and (latent[0, 7:9] == more[1]).all()


CACHE = {"q": f16(2, 1, 2, 64), "k_cache": f16(4, 8, 2, 64), "v_cache": f16(4, 8, 2, 64), "cache_seqlens": i32(3, 4), "page_table": i32(0, 1, 2, 3).reshape(2, 2)}


@pytest.mark.parametrize(
    "changes, told",
    [
        ({"q": f16(2, 2, 64)}, "q has shape .2, 2, 64., expected an array of 4 dimensions"),
        ({"rotary_cos": f16(4, 4)}, "rotary_cos is given, offered is none"),
        ({"k_descale": np.float32(1)}, "k_descale is given, offered is none"),
        ({"window_size": (1, 1)}, "window_size is .1, 1., offered are windows that end with the query's own key"),
        ({"cache_seqlens": i32(3)}, "cache_seqlens has shape .1., expected .2."),
        ({"cache_seqlens": i32(3, 17)}, "cache_seqlens holds 17 at element 1, expected 0 to 16"),
        ({"cache_seqlens": np.array([3, 4])}, "cache_seqlens is i64, expected i32"),
        ({"page_table": i32(0, 1, 9, 3).reshape(2, 2)}, "page_table holds 9 at .1, 0., expected 0 to 3"),
        ({"v_cache": f16(3, 8, 2, 64)}, "v_cache has shape .3, 8, 2, 64., expected .4, 8, ...."),
        ({"k": f16(2, 1, 2, 64)}, "v is missing, expected beside the other"),
        ({"k": f16(2, 1, 2, 64), "v": f16(2, 1, 2, 64), "page_table": i32(0, 9, 2, 3).reshape(2, 2), "cache_seqlens": i32(8, 4)}, "page_table holds 9 at .0, 1., expected 0 to 3"),
        ({"k": f16(4, 1, 2, 64), "v": f16(4, 6, 2, 64), "page_table": None, "q": f16(4, 1, 2, 64), "cache_seqlens": i32(3, 3, 3, 8)}, "v has shape .4, 6, 2, 64., expected .4, 1, 2, 64."),
        ({"k": f16(4, 6, 2, 64), "v": f16(4, 6, 2, 64), "page_table": None, "q": f16(4, 1, 2, 64), "cache_seqlens": i32(1, 1, 1, 3)}, "k has 6 new keys, expected room for them"),
        ({"q": f16(5, 1, 2, 64), "page_table": None, "cache_seqlens": 3}, "k_cache has 4 rows, expected one for request 4"),
        ({"out": np.zeros((2, 1, 2, 63), np.float16)}, "out has shape .2, 1, 2, 63., expected .2, 1, 2, 64."),
        ({"q": f16(2, 1, 2, 32)}, "k has shape|q"),
    ],
)
def test_what_does_not_fit_is_named_before_anything_is_written(changes, told):
    given = {**CACHE, **changes}
    before = given["k_cache"].tobytes(), given["v_cache"].tobytes()
    room = given.get("out")
    with pytest.raises(compat.Refused, match=f"^flash_attn_with_kvcache: {told}"):
        flash_attn_with_kvcache(**given)
    assert before == (given["k_cache"].tobytes(), given["v_cache"].tobytes()) and (room is None or not room.any())


@pytest.mark.parametrize(
    "changes, told",
    [
        ({"cu_seqlens_q": i32(0, 3)}, "cu_seqlens_q holds 3 at element 1, expected offsets that begin at 0, do not fall and end at 4"),
        ({"cu_seqlens_k": i32(0, 9)}, "cu_seqlens_k holds 9 at element 1, expected offsets that begin at 0, do not fall and stay within 8"),
        ({"cu_seqlens_k": i32(0, 4, 8)}, "cu_seqlens_k has 3 elements, expected 2 as cu_seqlens_q has"),
        ({"seqused_k": i32(9)}, "seqused_k holds 9 at element 0, expected 0 to 8"),
        ({"v": f16(7, 2, 64)}, "v has 7 rows, expected 8 as k has"),
        ({"qv": f16(4, 2, 512)}, "qv is given, offered is none"),
        ({"sinks": np.zeros(3, np.float32)}, "batch_prefill_with_ragged_kv_cache: sinks has shape"),
        ({"softcap": -1.0}, "softcap is -1.0, expected at least 0"),
    ],
)
def test_what_requests_do_not_take_is_named(changes, told):
    given = {"q": f16(4, 2, 64), "k": f16(8, 2, 64), "v": f16(8, 2, 64), "cu_seqlens_q": i32(0, 4), "cu_seqlens_k": i32(0, 8)}
    with pytest.raises(compat.Refused, match=f"^flash_attn_varlen_func: {told}"):
        flash_attn_varlen_func(**{**given, **changes})


def test_flash_mlas_dense_prefill_is_the_same():
    from dodona.compat import flash_mla

    q, k, v, ends, keys = f16(5, 4, 192), f16(9, 2, 192), f16(9, 2, 128), i32(0, 2, 5), i32(0, 4, 9)
    wanted, sums = flash_attn_varlen_func(q, k, v, ends, keys, softmax_scale=0.07, causal=True, return_softmax_lse=True)
    out, lse = flash_mla.flash_attn_varlen_func(q, k, v, ends, keys, 3, 5, softmax_scale=0.07, causal=True)
    assert np.array_equal(out, wanted) and np.array_equal(lse, sums.T) and lse.shape == (5, 4)
    together = np.concatenate([k, v], -1)
    assert np.array_equal(flash_mla.flash_attn_varlen_kvpacked_func(q, together, ends, keys, 3, 5, 192, softmax_scale=0.07, causal=True)[0], wanted)
    each = np.concatenate([f16(5, 2, 192), f16(5, 2, 192), f16(5, 2, 128)], -1)
    parts = each[..., :192], each[..., 192:384], each[..., 384:]
    packed, _ = flash_mla.flash_attn_varlen_qkvpacked_func(each, ends, 3, 192)
    assert np.array_equal(packed, flash_mla.flash_attn_varlen_func(*parts, ends, ends, 3, 3)[0])
    for argument, value in (("dropout_p", 0.1), ("deterministic", True)):
        with pytest.raises(compat.Refused, match=f"flash_attn_varlen_func: {argument} is given"):
            flash_mla.flash_attn_varlen_func(q, k, v, ends, keys, 3, 5, **{argument: value})
    with pytest.raises(compat.Refused, match="flash_attn_varlen_kvpacked_func: kv has 320 columns, expected more than 320"):
        flash_mla.flash_attn_varlen_kvpacked_func(q, together, ends, keys, 3, 5, 320)
