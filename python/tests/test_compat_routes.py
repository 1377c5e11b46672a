"""Routes of tokens to experts in FlashInfer's place, against the formulas in double precision."""

import numpy as np
import pytest

from dodona import compat
from dodona.compat import flashinfer
from dodona.compat.flashinfer import fused_moe

ROOM = compat._package("flashinfer").own["flashinfer.fused_moe.trtllm_gen_routing.max_num_padded_tokens"]
METHODS = {"Default": 0, "Renormalize": 1, "DeepSeekV3": 2, "Llama4": 3, "RenormalizeNaive": 4, "TopK": 5, "SigmoidRenorm": 6, "MiniMax2": 7, "Sigmoid": 8, "TopKSigmoid": 9}


def wide(words):
    return (np.asarray(words).view(np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def logits(tokens=11, experts=32):
    """All of a row are different."""
    return np.stack([np.random.default_rng(row).permutation(experts) for row in range(tokens)]).astype(np.float32) / 8


def softmax(x):
    return np.exp(x) / np.exp(x).sum(-1, keepdims=True)


def weights_of(method, x, ids, norm=True):
    chosen = np.take_along_axis(x, ids, 1)
    sigmoid = 1 / (1 + np.exp(-chosen))
    if method == "Default":
        return np.take_along_axis(softmax(x), ids, 1)
    if method in ("Renormalize", "RenormalizeNaive"):
        return softmax(chosen)
    if method == "TopK":
        return chosen
    if method in ("SigmoidRenorm", "MiniMax2", "DeepSeekV3") and norm:
        return sigmoid / sigmoid.sum(1, keepdims=True)
    return sigmoid


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("tile", [4, 32])
def test_rows_stand_in_whole_tiles_of_their_expert(method, tile):
    x, k = logits(), 1 if method == "Llama4" else 4
    bias = np.zeros(32, np.float32)
    bias[7] = 9.0
    biased, groups = method in ("MiniMax2", "DeepSeekV3"), {"n_group": 1, "topk_group": 1} if method == "DeepSeekV3" else {}
    found = fused_moe.trtllm_gen_routing(x, bias if biased else None, METHODS[method], k, tile_tokens_dim=tile, **groups)
    rank = 1 / (1 + np.exp(-x.astype(np.float64))) + bias if biased else x.astype(np.float64)
    ids = np.asarray(found.topk_ids)
    assert np.array_equal(np.sort(ids, 1), np.sort(np.argsort(-rank, 1)[:, :k], 1)) and (not biased or (ids == 7).any(1).all())
    assert np.allclose(wide(found.topk_weights), weights_of(method, x.astype(np.float64), ids), rtol=2.0**-7)
    counts = np.bincount(ids.reshape(-1), minlength=32)
    tiles = -(-counts // tile)
    begins = np.concatenate([[0], np.cumsum(tiles) * tile])
    assert found.total_num_padded_tokens[0] == begins[-1] and found.num_non_exiting_ctas[0] == tiles.sum()
    at = np.asarray(found.expanded_idx_to_permuted_idx)
    assert len(np.unique(at)) == at.size and ((at >= begins[ids]) & (at < begins[ids] + counts[ids])).all()
    assert np.array_equal(found.permuted_idx_to_token_idx[at], np.broadcast_to(np.arange(11)[:, None], at.shape))
    assert np.array_equal(found.cta_idx_xy_to_batch_idx[: tiles.sum()], np.repeat(np.arange(32), tiles))
    limits = np.concatenate([np.minimum(begins[e] + np.arange(1, n + 1) * tile, begins[e] + counts[e]) for e, n in enumerate(tiles)])
    assert np.array_equal(found.cta_idx_xy_to_mn_limit[: tiles.sum()], limits)
    assert found.permuted_idx_to_token_idx.shape == (ROOM(11, k, 32, tile),)


def test_another_ranks_experts_have_no_rows():
    x = logits()
    whole = fused_moe.trtllm_gen_routing(x, None, 1, 4)
    part = fused_moe.trtllm_gen_routing(x, None, 1, 4, local_expert_offset=8, local_num_experts=16)
    here = (whole.topk_ids >= 8) & (whole.topk_ids < 24)
    assert np.array_equal(part.topk_ids, np.where(here, whole.topk_ids, -1)) and np.array_equal(part.expanded_idx_to_permuted_idx >= 0, here)
    assert part.total_num_padded_tokens[0] == sum(-(-n // 8) * 8 for n in np.bincount(whole.topk_ids[here], minlength=32))


@pytest.mark.parametrize("method, keywords, words", [
    (2, {}, "n_group should not be zero"), (2, {"n_group": 3, "topk_group": 1}, "must be divisible by n_group"), (2, {"n_group": 4}, "topk_group must be given"),
    (2, {"n_group": 2, "topk_group": 4}, "not be smaller than topk_group"), (2, {"n_group": 16, "topk_group": 1}, "less than total number of experts"),
    (1, {"n_group": 2}, "only supports n_group <= 1"), (1, {"num_fused_shared_experts": 1}, "fusing shared expert"), (1, {"tile_tokens_dim": 12}, "power of two"),
    (10, {}, "concrete RoutingMethodType"),
])  # fmt: skip
def test_what_no_kernel_routes_is_refused(method, keywords, words):
    with pytest.raises(compat.Refused, match=words):
        fused_moe.trtllm_gen_routing(logits(), None, method, 4, **keywords)


@pytest.mark.parametrize("shared", [0, 1])
def test_experts_by_a_table_of_words(shared):
    x, table = logits(5, 16), np.random.default_rng(2).permuted(np.tile(np.arange(16, dtype=np.int32), (9, 1)), axis=1)[:, :6].copy()
    words = np.array([8, 0, 3, 3, 1])
    weights, ids = fused_moe.hash_topk(x, words, table, shared, 2.5)
    scores = np.sqrt(np.log1p(np.exp(np.take_along_axis(x.astype(np.float64), table[words], 1))))
    assert np.array_equal(ids[:, :6], table[words]) and ids.dtype == np.int32
    assert np.allclose(weights[:, :6], scores / scores.sum(1, keepdims=True), rtol=1e-6)
    assert weights.shape == (5, 6 + shared) and (not shared or ((ids[:, 6] == 16).all() and np.allclose(weights[:, 6], 0.4)))


def test_tables_that_do_not_fit_are_refused():
    x, table, words = logits(2, 16), np.zeros((4, 32), np.int32), np.array([0, 4])
    for bad, told in (((x, words, table), "input_ids holds 4"), ((x, words[:1], table), "input_ids"), ((x, words * 0, table, 1), "1 to 32"), ((x, words * 0, table + 16), "expert 16 of 16")):
        with pytest.raises(compat.Refused, match=told):
            flashinfer.fused_moe.hash_topk(*bad)
