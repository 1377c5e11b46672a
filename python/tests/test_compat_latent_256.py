"""Latent rows of 256 numbers, a smaller model's, in upstream's place: against the formula in fp64."""

import numpy as np
import pytest

from dodona import compat
from dodona.compat import flashinfer

RANDOM = np.random.default_rng(13)
BOTH = pytest.mark.parametrize("mode", [None, "golden"])
RANK, ROPE, PAGE = 256, 64, 32
LENGTHS, TABLES = [40, 9], np.array([[3, 1], [0, 2]], np.int32)


def bf16(*shape):
    return (RANDOM.standard_normal(shape).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def wide(words):
    return (np.asarray(words).view(np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def written_out(query, cache, scale, causal_queries=1):
    """[B, Q, N, RANK] outputs and logarithms to base 2, of the last Q tokens of each request."""
    out, lse = np.zeros((*query.shape[:3], RANK)), np.zeros(query.shape[:3])
    for b, i in np.ndindex(*query.shape[:2]):
        keys = wide(cache)[TABLES[b]].reshape(-1, RANK + ROPE)[: LENGTHS[b] - causal_queries + 1 + i]
        scores = wide(query)[b, i] @ keys.T * scale
        power = np.exp(scores - scores.max(-1, keepdims=True))
        out[b, i] = power @ keys[:, :RANK] / power.sum(-1, keepdims=True)
        lse[b, i] = (scores.max(-1) + np.log(power.sum(-1))) / np.log(2)
    return out, lse


@BOTH
@pytest.mark.parametrize("given", [False, True])
def test_decoding_over_pages(mode, given):
    query, cache = bf16(2, 2, 3, RANK + ROPE), bf16(4, 1, PAGE, RANK + ROPE)
    room = bf16(2, 2, 3, RANK) if given else None
    out, lse = flashinfer.decode.trtllm_batch_decode_with_kv_cache_mla(
        query, cache, np.zeros(1 << 20, np.uint8), 64, RANK, ROPE, TABLES, np.array(LENGTHS, np.int32), 40, out=room, bmm1_scale=0.05, return_lse=True, mode=mode
    )
    assert out.shape == (2, 2, 3, RANK) and (out is room or not given)
    wanted, sums = written_out(query, cache[:, 0], 0.05, 2)
    assert np.abs(wide(out) - wanted).max() < 2e-2 and np.abs(np.asarray(lse).reshape(sums.shape) - sums).max() < 1e-3


def test_what_does_not_fit_is_refused():
    query, cache = bf16(2, 1, 3, RANK + ROPE), bf16(4, 1, PAGE, RANK + ROPE)
    call = lambda **changes: flashinfer.decode.trtllm_batch_decode_with_kv_cache_mla(
        **{"query": query, "kv_cache": cache, "workspace_buffer": np.zeros(1 << 20, np.uint8), "qk_nope_head_dim": 64, "kv_lora_rank": RANK, "qk_rope_head_dim": ROPE,
           "block_tables": TABLES, "seq_lens": np.array(LENGTHS, np.int32), "max_seq_len": 40, "bmm1_scale": 0.05, **changes}
    )  # fmt: skip
    with pytest.raises(compat.Refused, match=r"query has shape \[2, 1, 3, 256\], expected rows of 320"):
        call(query=query[..., :RANK])
    with pytest.raises(compat.Refused, match=r"kv_cache has shape \[4, 1, 32, 319\], expected rows of 320"):
        call(kv_cache=cache[..., 1:])
    with pytest.raises(compat.Refused, match="kv_lora_rank"):
        call(kv_lora_rank=128)
    room = np.broadcast_to(np.uint16(7), (2, 1, 3, RANK))
    with pytest.raises(compat.Refused, match="out .* is written"):
        call(out=room)


@pytest.mark.parametrize("given", [False, True])
def test_the_wrapper_over_pages(given):
    query, cache = bf16(2, 1, 3, RANK + ROPE), bf16(4, PAGE, RANK + ROPE)
    wrapper = flashinfer.mla.BatchMLAPagedAttentionWrapper(np.zeros(8, np.uint8))
    ends = lambda *values: np.array(values, np.int32)
    wrapper.plan(ends(0, 1, 2), ends(0, 2, 3), ends(3, 1, 0), ends(*LENGTHS), 3, RANK, ROPE, PAGE, True, 0.05, "bf16", "bf16")
    rows = query[:, 0]
    room = bf16(2, 3, RANK) if given else None
    out, lse = wrapper.run(rows[..., :RANK], rows[..., RANK:], cache[..., :RANK], cache[..., RANK:], out=room, return_lse=True)
    wanted, sums = written_out(query, cache, 0.05)
    assert out.shape == (2, 3, RANK) and (out is room or not given)
    assert np.abs(wide(out) - wanted[:, 0]).max() < 2e-2 and np.abs(lse - sums[:, 0]).max() < 1e-3
    plain = wrapper.run(rows[..., :RANK], rows[..., RANK:], cache[..., :RANK], cache[..., RANK:])
    assert np.asarray(plain).tobytes() == np.asarray(out).tobytes()
