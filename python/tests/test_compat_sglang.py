"""sglang's functions around experts: that they take what upstream's callers give, and that together they undo each other."""

import inspect
from types import SimpleNamespace

import numpy as np
import pytest

import dodona
from dodona.compat import NotOffered, Refused, sglang

RANDOM = np.random.default_rng(3)
TOKENS, TOPK, EXPERTS, WIDTH = 6, 2, 4, 128


def as_bf16(values):
    """Bits, as dodona takes them without ml_dtypes."""
    return (np.ascontiguousarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint16)


def widened(bits):
    return (np.ascontiguousarray(bits).view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def test_what_is_offered_is_there_with_upstreams_parameters():
    assert list(inspect.signature(sglang.ep_scatter).parameters)[:3] == ["recv_x", "recv_x_scale", "recv_topk"]
    for name in sglang.__all__:
        thing = getattr(sglang, name)
        assert callable(thing[(1,)] if name in sglang.KERNELS else thing)


def test_the_w4a8_permutes_undo_each_other():
    ids = RANDOM.integers(0, EXPERTS + 1, (TOKENS, TOPK)).astype(np.int32)
    rows = sglang.cutlass_w4_run_moe_ep_preproess(ids)
    assert sorted(rows) == list(range(TOKENS * TOPK))
    x = as_bf16(RANDOM.standard_normal((TOKENS, WIDTH)))
    sorted_rows = np.zeros((TOKENS * TOPK, WIDTH), np.uint16)
    sglang.pre_reorder_for_cutlass_moe(x, sorted_rows, rows, ids, None, EXPERTS, TOPK, TOKENS, WIDTH)
    out = np.zeros((TOKENS, WIDTH), np.uint16)
    weights = np.full((TOKENS, TOPK), 0.5, np.float32)
    sglang.post_reorder_for_cutlass_moe(sorted_rows, out, rows, ids, weights, EXPERTS, TOPK, TOKENS, WIDTH, 2.0)
    there = (ids != EXPERTS).sum(1, keepdims=True)
    assert np.array_equal(widened(out), widened(as_bf16(widened(x) * there)))


def test_what_lies_between_the_w4a8_products_is_written_into_the_callers_memory():
    x = as_bf16(RANDOM.standard_normal((TOKENS, 2 * WIDTH)))
    scale = np.array([0.25], np.float32)
    rows = np.zeros((TOKENS, WIDTH), np.uint8)
    assert sglang.silu_mul_static_tensorwise_quant_for_cutlass_moe(x, rows, scale, np.array([4], np.int32), TOKENS, WIDTH) is None
    assert rows[:4].any() and not rows[4:].any()
    masked = np.zeros((2, TOKENS // 2, WIDTH), np.uint8)
    out = sglang.silu_and_mul_masked_post_per_tensor_quant_fwd(x.reshape(2, TOKENS // 2, -1), masked, np.array([3, 1], np.int32), scale)
    assert np.array_equal(np.asarray(out).view(np.uint8), masked) and masked[0].any() and not masked[1, 1:].any()
    assert (masked[0] != rows[:3]).mean() < 0.1  # a rounding of silu apart
    each = np.zeros_like(masked)  # a scale for each expert: the kernel reads the first alone
    sglang.silu_and_mul_masked_post_per_tensor_quant_fwd(x.reshape(2, TOKENS // 2, -1), each, np.array([3, 1], np.int32), np.array([0.25, 9], np.float32))
    assert np.array_equal(each[0, :3], masked[0, :3]) and np.array_equal(each[1, :1], masked[1, :1])
    with pytest.raises(ValueError, match=r"scale has shape \[3\], expected one element or 2, one for each expert"):
        sglang.silu_and_mul_masked_post_per_tensor_quant_fwd(x.reshape(2, TOKENS // 2, -1), each, np.array([3, 1], np.int32), np.ones(3, np.float32))


def test_deepeps_normal_permutes_undo_each_other():
    ids = RANDOM.integers(-1, EXPERTS, (TOKENS, TOPK))
    experts, rows, begins = sglang.deepep_run_moe_deep_preprocess(ids, EXPERTS)
    count = int((ids >= 0).sum())
    assert experts.tolist() == sorted(ids[ids >= 0].tolist()) and begins[-1] == count and len(rows) == TOKENS * TOPK
    x = as_bf16(RANDOM.standard_normal((TOKENS, WIDTH)))
    permuted, out = np.zeros((count, WIDTH), np.uint16), np.zeros((TOKENS, WIDTH), np.uint16)
    sglang.deepep_permute_triton_kernel[(TOKENS,)](x, permuted, rows, ids, None, TOPK, WIDTH, BLOCK_SIZE=512)
    weights = np.ones((TOKENS, TOPK), np.float32)
    sglang.deepep_post_reorder_triton_kernel[(TOKENS,)](permuted, out, rows, ids, weights, TOPK, WIDTH, BLOCK_SIZE=512)
    assert np.array_equal(widened(out), widened(as_bf16(widened(x) * (ids >= 0).sum(1, keepdims=True))))


def test_ep_scatter_wants_as_many_scales_as_upstream_asserts():
    ids = np.array([[0, 1], [1, -1]], np.int32)

    def scatter(columns, dtype, ue8m0):
        rows, owners = np.zeros((256, 512), np.uint16), np.zeros(256, np.int32)
        scales = np.arange(2 * columns).reshape(2, columns).astype(dtype)
        out, where, start = np.zeros((256, columns), dtype), np.zeros((2, 2), np.int32), np.zeros(2, np.int32)
        sglang.ep_scatter(np.ones((2, 512), np.uint16), scales, ids, np.array([128, 128], np.int32), start, rows, out, owners, where, scale_ue8m0=ue8m0)
        return scales, out, where

    for columns, dtype, ue8m0 in ((4, np.float32, False), (1, np.int32, True)):
        scales, out, where = scatter(columns, dtype, ue8m0)
        assert np.array_equal(out[where[0, 0]], scales[0]) and np.array_equal(out[where[1, 0]], scales[1])
    for columns, dtype, ue8m0, expected in ((3, np.float32, False, "3 columns, expected 4"), (4, np.int32, True, "4 columns, expected 1")):
        with pytest.raises(Refused, match=f"ep_scatter: recv_x_scale has {expected}"):
            scatter(columns, dtype, ue8m0)


def test_the_preprocess_for_deepgemm_returns_what_upstreams_does():
    ids = RANDOM.integers(-1, EXPERTS, (TOKENS, TOPK)).astype(np.int32)
    x = as_bf16(RANDOM.standard_normal((TOKENS, WIDTH)))
    masked, expected, rows, codes, scales = sglang.moe_ep_deepgemm_preprocess(ids, EXPERTS, x, TOPK, [128, 128])
    assert masked.tolist() == [(ids == e).sum() for e in range(EXPERTS)]
    assert expected == (TOKENS * TOPK - 1) // EXPERTS + 1
    assert rows.shape == (TOKENS * TOPK,) and codes.shape == (EXPERTS, 256, WIDTH) and scales.shape == (EXPERTS, 256, 1)


def straight(logits, bias, groups, kept, topk):
    """Weights by expert of the V3 router."""
    score = 1 / (1 + np.exp(-logits.astype(np.float64)))
    found = np.zeros_like(score)
    for t, s in enumerate(score):
        key = s + bias
        best = np.sort(key.reshape(groups, -1), axis=1)[:, -2:].sum(1)
        key[np.repeat(best < np.sort(best)[-kept], len(key) // groups)] = -np.inf
        chosen = np.argsort(-key)[:topk]
        found[t, chosen] = s[chosen] / s[chosen].sum()
    return found


@pytest.mark.parametrize("experts, groups", [(64, 8), (96, 4)])
def test_select_experts_routes_maps_and_masks(experts, groups):
    logits = RANDOM.standard_normal((TOKENS, experts)).astype(np.float32)
    bias = RANDOM.standard_normal(experts).astype(np.float32)
    config = sglang.TopKConfig(
        top_k=4, use_grouped_topk=True, num_expert_group=groups, topk_group=2, correction_bias=bias, routed_scaling_factor=2.5,
        apply_routed_scaling_factor_on_output=True,
    )  # fmt: skip
    physical = RANDOM.permutation(experts) + 1000
    info = SimpleNamespace(ep_dispatch_algorithm="static", partial_logical_to_rank_dispatch_physical_map=physical)
    x = np.zeros((TOKENS, 8), np.uint16)
    out = sglang.select_experts(x, logits, config, num_token_non_padded=np.array([4], np.int32), expert_location_dispatch_info=info)
    assert out.router_logits is logits and (out.topk_ids[4:] == -1).all()
    found = np.zeros((TOKENS, experts))
    for t in range(4):
        found[t, [np.flatnonzero(physical == e)[0] for e in out.topk_ids[t]]] = out.topk_weights[t]
    assert np.allclose(found[:4], 2.5 * straight(logits, bias, groups, 2, 4)[:4], atol=1e-6)
    again = sglang.biased_grouped_topk(
        x, logits, bias, 4, True, num_expert_group=groups, topk_group=2, routed_scaling_factor=2.5, apply_routed_scaling_factor_on_output=True, mode="golden"
    )  # fmt: skip
    assert np.array_equal(np.sort(physical[again[1][:4]]), np.sort(out.topk_ids[:4]))


def test_ungrouped_routers_go_by_their_scores():
    logits = RANDOM.standard_normal((TOKENS, 16)).astype(np.float32)
    weights, ids = sglang.fused_topk(None, logits, 3, True, scoring_func="sigmoid")
    assert np.array_equal(ids, np.argsort(-logits)[:, :3])
    assert np.allclose(weights.sum(1), 1)


def test_what_is_not_offered_says_so():
    logits = np.zeros((2, 8), np.float32)
    info = SimpleNamespace(ep_dispatch_algorithm="dynamic")
    with pytest.raises(NotOffered, match="offered is 'static'"):
        sglang.select_experts(None, logits, sglang.TopKConfig(2), expert_location_dispatch_info=info)
    with pytest.raises(NotOffered, match="custom_routing_function"):
        sglang.select_experts(None, logits, sglang.TopKConfig(2, custom_routing_function=print))
    with pytest.raises(Refused, match="hidden_states has 3 rows"):
        sglang.select_experts(np.zeros((3, 4), np.uint16), logits, sglang.TopKConfig(2))
    with pytest.raises(dodona.Error, match="top_k|topk"):
        sglang.select_experts(None, logits, sglang.TopKConfig(9))


@pytest.mark.parametrize("junk", [None, "nonsense", 7, -1, float("nan"), [1, 2], object(), np.float32(3), np.zeros(()), np.zeros((1, 2, 3))])
def test_what_is_no_such_argument_is_refused_by_the_name_that_was_called(junk):
    """Of every function, whatever it does with shapes before its op sees them: nothing else is raised."""
    x, rows, ids = np.zeros((6, 8), np.uint16), np.zeros(12, np.int32), np.zeros((6, 2), np.int32)
    weights, logits = np.ones((6, 2), np.float32), np.zeros((6, 8), np.float32)
    calls = {
        "deepep_permute_triton_kernel": (x, np.zeros((12, 8), np.uint16), rows, ids.astype(np.int64), None, 2, 8, 512),
        "post_reorder_triton_kernel": (np.zeros((12, 8), np.uint16), x, rows, ids, weights, 2, 8, 512),
        "pre_reorder_for_cutlass_moe": (x, np.zeros((12, 8), np.uint16), rows, ids, None, 4, 2, 6, 8),
        "ep_scatter": (np.zeros((6, 128), np.uint8), np.zeros((6, 1), np.float32), ids.astype(np.int64), *[np.zeros(4, np.int32)] * 6),
        "silu_and_mul_masked_post_per_tensor_quant_fwd": (x[None], np.zeros((1, 6, 4), np.uint8), np.zeros(1, np.int32), np.ones(1, np.float32)),
        "fused_topk": (x, logits, 2, True),
        "grouped_topk": (x, logits, 2, True),
    }
    for name, arguments in calls.items():
        called = getattr(sglang, name)
        called = called[(1,)] if name in sglang.KERNELS else called
        for at in range(len(arguments)):
            try:
                called(*arguments[:at], junk, *arguments[at + 1 :])
            except Refused as refused:
                assert str(refused).startswith(f"{name}:"), at
