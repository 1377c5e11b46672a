"""FlashInfer's wrappers over pages, masks and shared prefixes, against softmax written out in NumPy."""

import functools

import numpy as np
import pytest

from dodona import compat
from dodona.compat import flashinfer
from dodona.compat._layouts import E4M3

RANDOM = np.random.default_rng(21)
HEADS, KEY_HEADS, WIDTH, SIZE = 4, 2, 64, 4
BOTH = pytest.mark.parametrize("mode", [None, "golden"])


def f16(*shape):
    return RANDOM.standard_normal(shape).astype(np.float16)


def i32(*values):
    return np.array(values, np.int32)


def written_out(q, k, v, scale=WIDTH**-0.5, causal=False, window=-1, cap=0.0, mask=None, sinks=None):
    """One request: q [n, N, D], k [m, Nk, D] -> out [n, N, D], base-2 logarithms [n, N]."""
    (n, heads, _), (m, key_heads, _) = q.shape, k.shape
    k, v = (np.repeat(part.astype(np.float64), heads // key_heads, 1) for part in (k, v))
    scores = np.einsum("nhd,mhd->hnm", q.astype(np.float64), k) * scale
    scores = cap * np.tanh(scores / cap) if cap else scores
    own, j = np.arange(n)[:, None] + m - n, np.arange(m)[None]
    seen = (j <= own if causal else j >= 0) & (j >= own - window if window >= 0 else True) & (True if mask is None else mask)
    powers = np.where(seen, np.exp(scores), 0)
    total = powers.sum(-1) + (0 if sinks is None else np.exp(sinks.astype(np.float64))[:, None])
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.nan_to_num(np.einsum("hnm,mhd->nhd", powers / total[..., None], v)), np.log2(total).T


def near(found, wanted, part=4e-3):
    np.testing.assert_allclose(np.asarray(found, np.float64), wanted, atol=part, rtol=part)


class Requests:
    """Keys and values in pages, in no order."""

    def __init__(self, lengths, heads_first=False, pair=False):
        self.counts = [-(-length // SIZE) for length in lengths]
        pages = RANDOM.permutation(sum(self.counts) + 3)
        self.indptr, self.indices = i32(0, *np.cumsum(self.counts)), pages[: sum(self.counts)].astype(np.int32)
        self.last = i32(*[(length - 1) % SIZE + 1 if length else 0 for length in lengths])
        self.cache = f16(len(pages), 2, SIZE, KEY_HEADS, WIDTH)
        self.rows = []
        for b, length in enumerate(lengths):
            own = self.indices[self.indptr[b] : self.indptr[b + 1]]
            self.rows.append(tuple(self.cache[own, half].reshape(-1, KEY_HEADS, WIDTH)[:length] for half in (0, 1)))
        self.given = self.cache
        if heads_first:
            self.given = np.ascontiguousarray(self.given.swapaxes(2, 3))
        if pair:
            self.given = (self.given[:, 0], self.given[:, 1])

    @property
    def pages(self):
        return self.indptr, self.indices, self.last


SIGHTS = [{}, {"causal": True}, {"window_left": 3, "causal": True}, {"logits_soft_cap": 1.5}, {"sm_scale": 0.3}]


@BOTH
@pytest.mark.parametrize("how", SIGHTS)
@pytest.mark.parametrize("layout, pair", [("NHD", False), ("HND", True)])
def test_prompts_in_pages(how, layout, pair, mode):
    requests, q_ends = Requests((5, 11, 0, 8), layout == "HND", pair), i32(0, 2, 9, 9, 12)
    q = f16(12, HEADS, WIDTH)
    wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(None, layout)
    with pytest.raises(compat.Refused, match="plan comes first"):
        wrapper.run(q, requests.given)
    wrapper.plan(q_ends, *requests.pages, HEADS, KEY_HEADS, WIDTH, SIZE, **how)
    out, lse = wrapper.run(q, requests.given, return_lse=True, mode=mode)
    for (k, v), a, b in zip(requests.rows, q_ends, q_ends[1:]):
        if a < b:
            same = {"scale": how.get("sm_scale", WIDTH**-0.5), "causal": how.get("causal", False), "window": how.get("window_left", -1), "cap": how.get("logits_soft_cap", 0)}
            values, sums = written_out(q[a:b], k, v, **same)
            near(out[a:b], values)
            near(lse[a:b], sums, 1e-3)
    room, sums = np.zeros_like(out), np.zeros_like(lse)
    assert wrapper.run(q, requests.given, out=room, lse=sums, mode=mode) is room and room.tobytes() == out.tobytes() and sums.tobytes() == lse.tobytes()
    assert wrapper.run_return_lse(q, requests.given, mode=mode)[1].tobytes() == lse.tobytes()


@BOTH
def test_a_query_a_request(mode):
    requests, q = Requests((5, 11, 8)), f16(3, HEADS, WIDTH)
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(None, use_tensor_cores=True)
    wrapper.plan(*requests.pages, HEADS, KEY_HEADS, WIDTH, SIZE, window_left=6)
    out = wrapper.run(q, requests.given, mode=mode)
    scaled = wrapper.run(q, requests.given, q_scale=0.5, k_scale=np.array([2.0], np.float32), v_scale=2.0, mode=mode)
    assert wrapper.use_tensor_cores and not wrapper.is_cuda_graph_enabled and wrapper.end_forward() is None
    for b, (k, v) in enumerate(requests.rows):
        near(out[b : b + 1], written_out(q[b : b + 1], k, v, window=6)[0])
    near(scaled, 2 * out.astype(np.float64))
    near(wrapper.run(q, requests.given, window_left=2, mode=mode)[1:2], written_out(q[1:2], *requests.rows[1], window=2)[0])
    two = f16(6, HEADS, WIDTH)
    near(wrapper.run(two, requests.given, q_len_per_req=2, mode=mode)[2:4], written_out(two[2:4], *requests.rows[1], causal=True, window=6)[0])
    sinks = RANDOM.standard_normal(HEADS).astype(np.float32)
    near(wrapper.run(q, requests.given, sinks=sinks, mode=mode)[:1], written_out(q[:1], *requests.rows[0], window=6, sinks=sinks)[0])
    near(wrapper.forward(q, requests.given, sm_scale=0.3)[:1], written_out(q[:1], *requests.rows[0], scale=0.3)[0])
    graph = flashinfer.decode.CUDAGraphBatchDecodeWithPagedKVCacheWrapper(None, None, None, None)
    graph.plan = functools.partial(flashinfer.decode.fast_decode_plan, graph)
    graph.plan(*requests.pages, HEADS, KEY_HEADS, WIDTH, SIZE, window_left=6)
    assert graph.run(q, requests.given, mode=mode).tobytes() == out.tobytes()


def test_codes_of_eight_bits_are_what_they_stand_for():
    import dodona

    requests, q = Requests((6, 9)), f16(2, HEADS, WIDTH)
    codes = RANDOM.integers(0, 0x50, requests.cache.shape).astype(np.uint8)
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(None)
    wrapper.plan(*requests.pages, HEADS, KEY_HEADS, WIDTH, SIZE, kv_data_type="float8_e4m3fn")
    out = wrapper.run(q, dodona.as_dtype(codes, "f8_e4m3"), k_scale=0.5)
    requests.cache = E4M3[codes].astype(np.float16)
    wrapper.plan(*requests.pages, HEADS, KEY_HEADS, WIDTH, SIZE)
    assert wrapper.run(q, requests.cache, k_scale=0.5).tobytes() == out.tobytes()


@BOTH
@pytest.mark.parametrize("packed", [False, True])
def test_masks_of_the_callers(packed, mode):
    requests, q_ends = Requests((7, 12)), i32(0, 3, 8)
    q, masks = f16(8, HEADS, WIDTH), [RANDOM.integers(0, 2, size).astype(bool) for size in ((3, 7), (5, 12))]
    masks[1][2] = False
    flat = np.concatenate([mask.reshape(-1) for mask in masks])
    given = {"custom_mask": flat}
    if packed:
        given = {"packed_custom_mask": flashinfer.quantization.segment_packbits(flat, i32(0, 21, 81), "little")[0]}
    wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(None)
    wrapper.plan(q_ends, *requests.pages, HEADS, KEY_HEADS, WIDTH, SIZE, **given)
    out, lse = wrapper.run(q, requests.given, return_lse=True, mode=mode)
    ragged = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(None)
    ragged.plan(q_ends, i32(0, 7, 19), HEADS, KEY_HEADS, WIDTH, window_left=4, **given)
    k, v = (np.concatenate([rows[half] for rows in requests.rows]) for half in (0, 1))
    narrow = ragged.run(q, k, v, mode=mode)
    for (keys, values), mask, a, b in zip(requests.rows, masks, q_ends, q_ends[1:]):
        wanted, sums = written_out(q[a:b], keys, values, mask=mask)
        near(out[a:b], wanted)
        near(lse[a:b], sums, 1e-3)
        near(narrow[a:b], written_out(q[a:b], keys, values, mask=mask, window=4)[0])
    assert not out[5].any() and np.isneginf(lse[5]).all()
    one = flashinfer.single_prefill_with_kv_cache(q[:3], *requests.rows[0], custom_mask=masks[0], mode=mode)
    near(one, written_out(q[:3], *requests.rows[0], mask=masks[0])[0])
    first = np.tri(3, 7, 0, dtype=bool)  # from the first key on: another mask than a causal one
    near(flashinfer.single_prefill_with_kv_cache(q[:3], *requests.rows[0], custom_mask=first, mode=mode), written_out(q[:3], *requests.rows[0], mask=first)[0])
    causal = np.tri(3, 7, 4, dtype=bool)
    assert (
        flashinfer.single_prefill_with_kv_cache(q[:3], *requests.rows[0], custom_mask=causal, mode=mode).tobytes()
        == flashinfer.single_prefill_with_kv_cache(q[:3], *requests.rows[0], causal=True, mode=mode).tobytes()
    )


def turned(rows, positions, scale=1.0, theta=1e4):
    angles = positions[:, None] * (theta ** (-2.0 * np.arange(WIDTH // 2) / WIDTH) / scale)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    first, second = np.split(rows.astype(np.float64), 2, -1)
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], -1)


def test_positions_turn_queries_and_keys():
    q, k, v = f16(3, HEADS, WIDTH), f16(9, KEY_HEADS, WIDTH), f16(9, KEY_HEADS, WIDTH)
    out = flashinfer.single_prefill_with_kv_cache(q, k, v, causal=True, pos_encoding_mode="ROPE_LLAMA", rope_scale=2.0, rope_theta=100.0)
    near(out, written_out(turned(q, np.arange(6, 9), 2.0, 100.0), turned(k, np.arange(9), 2.0, 100.0), v, causal=True)[0])


@BOTH
def test_shared_prefixes_are_merged(mode):
    prefix, own = f16(10, 2, KEY_HEADS, WIDTH), Requests((5, 7))
    q = f16(6, HEADS, WIDTH)
    whole = [tuple(np.concatenate([prefix[:, half], rows[half]]) for half in (0, 1)) for rows in own.rows]
    wanted = np.concatenate([written_out(q[3 * b : 3 * b + 3], *whole[b], causal=True)[0] for b in (0, 1)])
    prefill = flashinfer.BatchPrefillWithSharedPrefixPagedKVCacheWrapper(None)
    prefill.begin_forward(i32(0, 3, 6), *own.pages, HEADS, KEY_HEADS, WIDTH, SIZE)
    near(prefill.forward(q, prefix[:, 0], prefix[:, 1], own.given, causal=True), wanted)
    decode = flashinfer.BatchDecodeWithSharedPrefixPagedKVCacheWrapper(None)
    decode.begin_forward(*own.pages, HEADS, KEY_HEADS, WIDTH, SIZE)
    out = decode.forward(q[:2], prefix[:, 0], prefix[:, 1], own.given)
    near(out, np.concatenate([written_out(q[b : b + 1], *whole[b])[0] for b in (0, 1)]))
    # The same prefix in pages behind the requests' own.
    pages = len(own.cache)
    filled = np.zeros((3, 2, SIZE, KEY_HEADS, WIDTH), np.float16)
    for token in range(10):
        filled[token // SIZE, :, token % SIZE] = prefix[token]
    cache = np.concatenate([own.cache, filled])
    levels = flashinfer.MultiLevelCascadeAttentionWrapper(2, None)
    shared = (i32(0, 3), i32(pages, pages + 1, pages + 2), i32(2))
    levels.plan([i32(0, 6), i32(0, 3, 6)], *([a, b] for a, b in zip(shared, own.pages)), HEADS, KEY_HEADS, WIDTH, SIZE, causal=True)
    near(levels.run(q, cache), wanted)
    with pytest.raises(compat.Refused, match="qo_indptr_arr has 1 members, expected 2"):
        levels.plan([i32(0, 6)], *([a, b] for a, b in zip(shared, own.pages)), HEADS, KEY_HEADS, WIDTH, SIZE)


@BOTH
def test_lengths_sinks_tables_and_prompts_beside_decodes(mode):
    requests, q_ends = Requests((5, 11)), i32(0, 2, 7)
    q = f16(7, HEADS, WIDTH)
    wanted = np.concatenate([written_out(q[a:b], *rows, causal=True)[0] for rows, a, b in zip(requests.rows, q_ends, q_ends[1:])])
    whole = flashinfer.BatchAttention()
    whole.plan(q_ends, requests.indptr, requests.indices, i32(5, 11), HEADS, KEY_HEADS, WIDTH, WIDTH, SIZE, causal=True, q_data_type="float16", kv_data_type="float16")
    out, lse = whole.run(q, requests.given, mode=mode)
    near(out, wanted)
    near(whole.run(q, requests.given, logits_soft_cap=1.5, mode=mode)[0][:2], written_out(q[:2], *requests.rows[0], causal=True, cap=1.5)[0])
    sinks = RANDOM.standard_normal(HEADS).astype(np.float32)
    sunk = flashinfer.BatchAttentionWithAttentionSinkWrapper(None, window_left=3)
    sunk.plan(q_ends, *requests.pages, HEADS, KEY_HEADS, WIDTH, SIZE, causal=True)
    near(sunk.run(q, requests.given, sinks, 0.2)[2:], written_out(q[2:], *requests.rows[1], scale=0.2, causal=True, window=3, sinks=sinks)[0])
    tables = np.zeros((2, 4), np.int32)
    for b in (0, 1):
        tables[b, : requests.counts[b]] = requests.indices[requests.indptr[b] : requests.indptr[b + 1]]
    scale = WIDTH**-0.5
    context = flashinfer.prefill.trtllm_batch_context_with_kv_cache
    by_table = context(q, requests.cache, None, tables, i32(5, 11), 5, 11, scale, 2.0, 2, q_ends, i32(0, 5, 16), kv_layout="NHD")
    near(by_table, 2 * wanted, 8e-3)
    last = flashinfer.decode.trtllm_batch_decode_with_kv_cache(q[[1, 6]], requests.cache, None, tables, i32(5, 11), 11, scale, kv_layout="NHD")
    near(last, wanted[[1, 6]])
    pod = flashinfer.PODWithPagedKVCacheWrapper(None)
    pod.plan(*requests.pages, HEADS, KEY_HEADS, WIDTH, SIZE)
    prompt, (decoded, _) = pod.run(q[:5], *requests.rows[1], q[[1, 6]], requests.given, causal_p=True, return_lse_d=True)
    near(prompt, written_out(q[:5], *requests.rows[1], causal=True)[0])
    near(decoded, wanted[[1, 6]])


@pytest.mark.parametrize(
    "changes, told",
    [
        ({"paged_kv_last_page_len": i32(5, 1)}, "paged_kv_last_page_len holds 5 at element 0, expected 1 to 4"),
        ({"paged_kv_indptr": i32(0, 2, 9)}, "paged_kv_indptr ends at 9, where paged_kv_indices has 5"),
        ({"qo_indptr": i32(0, 7)}, "qo_indptr has 2 elements, expected 3"),
        ({"qo_indptr": i32(0, 3, 2)}, "qo_indptr is .0, 3, 2., expected to begin at 0 and not to fall"),
        ({"num_qo_heads": 3}, "num_qo_heads is 3, expected a multiple of num_kv_heads = 2"),
        ({"pos_encoding_mode": "ALIBI"}, "pos_encoding_mode is ALIBI"),
        ({"prefix_len_ptr": i32(1, 1)}, "prefix_len_ptr is given, offered is None"),
        ({"q_data_type": "bfloat16"}, "q has dtype f16, expected bf16, the q_data_type of plan"),
        ({"page_size": 8}, "paged_kv_cache has pages of .4, 2, 64., expected .8, 2, 64. as planned"),
        ({"head_dim_qk": 128}, "q has shape .7, 4, 64., expected .7, 4, 128. as planned"),
        ({"paged_kv_indices": i32(0, 1, 2, 3, 99)}, "paged_kv_indices holds 99, expected 0 to 7"),
        ({"custom_mask": np.ones(3, bool)}, "custom_mask has 3 elements, expected 65"),
    ],
)
def test_what_does_not_fit_is_named(changes, told):
    requests = Requests((5, 11))
    wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(None)
    names = ("qo_indptr", "paged_kv_indptr", "paged_kv_indices", "paged_kv_last_page_len", "num_qo_heads", "num_kv_heads", "head_dim_qk", "page_size")
    given = dict(zip(names, (i32(0, 2, 7), *requests.pages, HEADS, KEY_HEADS, WIDTH, SIZE)))
    with pytest.raises(compat.Refused, match=f"^BatchPrefillWithPagedKVCacheWrapper: {told}"):
        wrapper.plan(**{**given, **changes})
        wrapper.run(f16(7, HEADS, WIDTH), requests.given)
    with pytest.raises(TypeError, match="unexpected keyword argument 'no_such'"):
        wrapper.plan(**given, no_such=1)
    with pytest.raises(compat.Refused, match="kv_layout is 'DNH'"):
        flashinfer.BatchPrefillWithPagedKVCacheWrapper(None, "DNH")


JUNK = [None, 0, -1, "x", True, [], (1, 2), 1e30, float("nan"), object(), np.zeros(3, np.float32), np.zeros((2, 2), np.int32), np.zeros((3, 4, 5), np.float16)]
PLANNED = ("qo_indptr", "paged_kv_indptr", "paged_kv_indices", "paged_kv_last_page_len", "num_qo_heads", "num_kv_heads", "head_dim_qk", "page_size")


@pytest.mark.parametrize("argument", [*PLANNED, "causal", "sm_scale", "window_left", "logits_soft_cap", "pos_encoding_mode", "custom_mask", "q", "paged_kv_cache", "out", "k_scale"])
def test_what_cannot_be_read_is_refused(argument):
    """Whatever it is, by one error that begins with the wrapper's name; nothing else comes out."""
    requests, q = Requests((5, 11)), f16(7, HEADS, WIDTH)
    good = dict(zip(PLANNED, (i32(0, 2, 7), *requests.pages, HEADS, KEY_HEADS, WIDTH, SIZE)))
    for junk in JUNK:
        run = {"q": q, "paged_kv_cache": requests.given}
        plan = {**good, argument: junk}
        if argument in ("q", "paged_kv_cache", "out", "k_scale"):
            plan, run = good, {**run, argument: junk}
        wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(None)
        try:
            wrapper.plan(**plan)
            wrapper.run(**run)
        except compat.Refused as error:
            assert str(error).startswith("BatchPrefillWithPagedKVCacheWrapper: ")
