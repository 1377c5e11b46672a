"""sglang's kernels that are compiled on the machine, by the arguments that its wrappers hand on."""

import sys

import numpy as np
import pytest

import dodona
from dodona import compat
from dodona.compat import sgl_kernel, sglang_jit

RANDOM = np.random.default_rng(12)


def f16(*shape):
    return RANDOM.standard_normal(shape).astype(np.float16)


def module(*args):
    return sglang_jit.load_jit(*args, cuda_files=["kernel.cuh"], cuda_wrappers=[("kernel", "Kernel::run")])


def test_norms_and_activations():
    x, weight, out = f16(3, 256), f16(256), f16(3, 256)
    module("rmsnorm", "256", "true").rmsnorm(x, weight, out, 1e-6)
    assert out.tobytes() == dodona.rmsnorm(x, weight, eps=1e-6).tobytes()
    module("rmsnorm_hf").rmsnorm_hf(x, weight, out, 1e-6)
    assert out.tobytes() == dodona.rmsnorm(x, weight, eps=1e-6, weight_order="rounded").tobytes()
    for cast, order in (("false", "fused"), ("true", "rounded")):
        residual, rest = f16(3, 256), x.copy()
        wanted = [rest.copy(), residual.copy()]
        dodona.fused_add_rmsnorm(*wanted, weight, weight_order=order)
        module("fused_add_rmsnorm", cast, "fp16_t").fused_add_rmsnorm(rest, residual, weight, 1e-6)
        assert rest.tobytes() == wanted[0].tobytes() and residual.tobytes() == wanted[1].tobytes()
    half = f16(3, 128)
    for kind, name in (("silu", "silu_and_mul"), ("gelu", "gelu_and_mul"), ("gelu_tanh", "gelu_tanh_and_mul")):
        module("activation").run_activation(x, half, kind)
        assert half.tobytes() == getattr(dodona, name)(x).tobytes()
    module("activation").run_activation_with_rounding(x, half, "silu")
    assert half.tobytes() == dodona.silu_and_mul(x, round_activation="yes").tobytes()
    kept = half.copy()
    module("activation").run_activation_filtered(f16(6, 256), six := np.full((6, 128), 7, np.float16), np.array([-1, 2, -1], np.int32), 2, "silu")
    assert (six[[0, 1, 4, 5]] == 7).all() and (six[2:4] != 7).any()
    module("activation").run_activation_filtered(x, half, np.array([0, 1, 2], np.int32), 1, "gelu")
    assert half.tobytes() == dodona.gelu_and_mul(x).tobytes() != kept.tobytes()
    with pytest.raises(compat.Refused, match="expert_ids has 1 experts for 2 rows each, expected 3 rows"):
        module("activation").run_activation_filtered(x, half, np.array([0], np.int32), 2, "gelu")
    with pytest.raises(compat.Refused, match="op_name is 'swish'"):
        module("activation").run_activation(x, half, "swish")


@pytest.mark.parametrize("neox", [True, False])
def test_rotations_and_what_they_store(neox):
    q, k, v = f16(4, 2, 64), f16(4, 1, 64), f16(4, 1, 64)
    cache, places = RANDOM.standard_normal((9, 64)).astype(np.float32), np.array([3, 0, 8, 5], np.int64)
    wanted = [q.reshape(4, -1).copy(), k.reshape(4, -1).copy()]
    dodona.apply_rope_with_cos_sin_cache_inplace(places, *wanted, 64, cache, neox)
    pools, slots = [np.zeros((6, 64), np.float16) for _ in range(2)], np.array([1, 5, 0, 2], np.int64)
    module("fused_rope", str(neox).lower(), "64", "false").run_rope_store(q, k, v, *pools, cache, places, slots)
    assert q.tobytes() == wanted[0].tobytes() and k.tobytes() == wanted[1].tobytes()
    assert pools[0][slots].tobytes() == wanted[1].tobytes() and pools[1][slots].tobytes() == v.tobytes() and not pools[0][3].any()
    wider, widest = f16(4, 2, 96), f16(4, 1, 96)  # the first numbers of heads
    before = wider.copy()
    parts = [np.ascontiguousarray(part[..., :64]) for part in (wider, widest)]
    for rows in ((wider[..., :64], widest[..., :64]), parts):
        module("fused_rope", str(neox).lower(), "64", "false").run_rope(*rows, cache, places)
    assert wider[..., :64].tobytes() == parts[0].tobytes() and wider[..., 64:].tobytes() == before[..., 64:].tobytes()
    other, same = bf16(4, 1, 64), f16(4, 2, 64)  # keys of another type
    alone = [same.reshape(4, -1).copy(), same[:, :1].reshape(4, -1).copy()]
    keys = [other.reshape(4, -1).copy(), other.reshape(4, -1).copy()]
    dodona.apply_rope_with_cos_sin_cache_inplace(places, *alone, 64, cache, neox)
    dodona.apply_rope_with_cos_sin_cache_inplace(places, *keys, 64, cache, neox)
    module("fused_rope", str(neox).lower(), "64", "false").run_rope(same, other, cache, places)
    assert same.tobytes() == alone[0].tobytes() and other.tobytes() == keys[0].tobytes()
    with pytest.raises(compat.Refused, match="indices holds 6 at element 1, expected 0 to 5"):
        module("kvcache").store_cache(k[:, 0], v[:, 0], *pools, np.array([0, 6, 1, 2], np.int64), 1)
    untouched = pools[0].copy()
    module("kvcache").store_cache(f16(3, 64), f16(3, 64), *pools, np.array([9, 4, 0], np.int64), 1, 6, 0)
    assert pools[0][4].any() and (np.delete(pools[0], 4, 0) == np.delete(untouched, 4, 0)).all()


def test_quantizers_routers_and_products():
    x = f16(4, 256)
    codes, scales = np.zeros((4, 256), np.uint8), np.zeros((4, 2), np.float32)
    wanted = [np.zeros_like(codes), np.zeros_like(scales)]
    sgl_kernel.sgl_per_token_group_quant_8bit(x, *wanted, 128, 1e-10, -448.0, 448.0)
    module("per_token_group_quant_8bit").per_token_group_quant_8bit(x, codes, scales, 128, 1e-10, -448.0, 448.0, False)
    assert codes.tobytes() == wanted[0].tobytes() and scales.tobytes() == wanted[1].tobytes()
    module("per_token_quant_fp8", "precise_math").per_token_quant_fp8(x, codes, row := np.zeros((4, 1), np.float32))
    np.testing.assert_allclose(row[:, 0], np.abs(x.astype(np.float32)).max(1) / 448, rtol=1e-6)
    one = np.zeros(1, np.float32)
    module("per_tensor_quant_fp8", "false", "fp16_t").per_tensor_quant_fp8(x.reshape(-1), codes.reshape(-1), one)
    np.testing.assert_allclose(one, np.abs(x.astype(np.float32)).max() / 448, rtol=1e-6)
    logits, weights, ids = RANDOM.standard_normal((5, 16)).astype(np.float32), np.zeros((5, 4), np.float32), np.zeros((5, 4), np.int32)
    module("moe_topk_softmax").topk_softmax(weights, ids, logits, None, True, 0.0, None)
    np.testing.assert_allclose(weights.sum(1), 1, rtol=1e-5)
    assert (np.sort(ids) == np.sort(np.argsort(-logits)[:, :4])).all()
    bias = RANDOM.standard_normal(16).astype(np.float32)
    module("moe_fused_gate").moe_fused_gate(logits, bias, weights, ids, 4, 0, 0, True, 2.5, True)
    keys = 1 / (1 + np.exp(-logits)) + bias
    assert (np.sort(ids) == np.sort(np.argsort(-keys)[:, :4])).all()
    np.testing.assert_allclose(weights.sum(1), 2.5, rtol=1e-5)
    for renormalize in (True, False):
        module("grouped_topk").grouped_topk(logits, bias, weights, ids, 4, 2, 4, renormalize, 2.5)
        for t in range(5):
            groups = np.argsort(-np.sort(keys[t].reshape(4, 4), 1)[:, -2:].sum(1))[:2]
            kept = np.where(np.isin(np.arange(16) // 4, groups), keys[t], -np.inf)
            assert sorted(ids[t]) == sorted(np.argsort(-kept)[:4])
            chosen = 1 / (1 + np.exp(-logits[t, ids[t]]))
            np.testing.assert_allclose(weights[t], 2.5 * chosen / (chosen.sum() if renormalize else 1), rtol=1e-5)
    for changes, told in (((1, 0), "scoring_func is 1"), ((0, 1), "num_fused_shared_experts is 1")):
        with pytest.raises(compat.NotOffered, match=told):
            module("moe_fused_gate").moe_fused_gate(logits, bias, weights, ids, 4, *changes, True, 2.5, True)
    rows, out = f16(3, 64), f16(3, 64)
    module("hadamard").hadamard_transform(rows, out, 0.125)
    assert out.tobytes() == np.asarray(sgl_kernel.hadamard_transform(rows, 0.125)).tobytes()


def test_latents_are_stored_in_rows_of_a_wider_pool():
    pool = np.zeros((5, 700), np.float16)
    nope, rope = f16(2, 512), f16(2, 64)
    module("set_mla_kv_buffer").set_mla_kv_buffer(pool[:, :576], np.array([4, 1], np.int64), nope, rope, 4)
    assert pool[[4, 1], :576].tobytes() == np.concatenate([nope, rope], 1).tobytes() and not pool[:, 576:].any() and not pool[0].any()


def bf16(*shape):
    return (RANDOM.standard_normal(shape).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def wide(codes):
    return (codes.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


@pytest.mark.parametrize("inner, columns", [(7168, 256), (1024, 256), (7168, 2112), (2048, 192)])
def test_few_rows_have_products_of_any_width(inner, columns):
    a, b = bf16(3, inner), bf16(columns, inner)
    out, wanted = np.zeros((3, columns), np.float32), wide(a) @ wide(b).T
    if columns != 2112:
        module("dsv3_router_gemm").dsv3_router_gemm(a, b, out)
        np.testing.assert_allclose(out, wanted, atol=1e-5 * np.abs(wanted).max())
    rounded = np.zeros((3, columns), np.uint16)
    module("dsv3_fused_a_gemm").dsv3_fused_a_gemm(a, b.T, rounded)
    np.testing.assert_allclose(wide(rounded), wanted, atol=2**-8 * np.abs(wanted).max())
    with pytest.raises(compat.Refused, match="out has shape"):
        module("dsv3_router_gemm").dsv3_router_gemm(a, b, out[:2])


def test_what_is_not_here_says_so():
    with pytest.raises(compat.NotOffered, match="run of fused_something: is not offered"):
        module("fused_something").run


def test_load_jit_takes_the_place_of_sglangs(monkeypatch, tmp_path):
    before = list(sys.meta_path)
    folder = tmp_path / "sglang" / "jit_kernel"
    folder.mkdir(parents=True)
    for path in (tmp_path / "sglang", folder):
        (path / "__init__.py").write_text("")
    (folder / "utils.py").write_text("def load_jit(*args, **how):\n    raise RuntimeError('no compiler')\n")
    (folder / "norm.py").write_text("from .utils import load_jit\nMODULE = load_jit('rmsnorm', '256')\n")
    for name in [name for name in sys.modules if name.partition(".")[0] == "sglang"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        sglang_jit.install()
        import sglang.jit_kernel.norm as norm

        assert isinstance(norm.MODULE, sglang_jit.Module) and norm.load_jit is sglang_jit.load_jit
        # What was imported before install.
        theirs = lambda *args: None
        for name in ("utils", "norm"):
            setattr(sys.modules[f"sglang.jit_kernel.{name}"], "load_jit", theirs)
        sglang_jit.install()
        assert norm.load_jit is sglang_jit.load_jit
    finally:
        sys.meta_path[:] = before
        for name in [name for name in sys.modules if name.partition(".")[0] == "sglang"]:
            del sys.modules[name]


@pytest.mark.parametrize("renormalize", [False, True])
@pytest.mark.parametrize("shared", [0, 1])
def test_sigmoids_with_a_factor_and_a_shared_expert(renormalize, shared):
    logits, bias = RANDOM.standard_normal((5, 12)).astype(np.float32), RANDOM.standard_normal(12).astype(np.float32)
    weights, ids = np.full((5, 3 + shared), 7, np.float32), np.full((5, 3 + shared), 7, np.int32)
    module("moe_topk_sigmoid").topk_sigmoid(logits, weights, ids, None, renormalize, bias, 2.5, shared)
    scores = 1 / (1 + np.exp(-logits.astype(np.float64)))
    for row in range(5):
        chosen = np.argsort(-(scores[row] + bias))[:3]
        assert ids[row, :3].tolist() == chosen.tolist()
        total = scores[row, chosen].sum()
        wanted = scores[row, chosen] * (2.5 / total if renormalize else 1)
        assert np.allclose(weights[row, :3], wanted, rtol=1e-6)
        if shared:
            assert ids[row, 3] == 12 and np.isclose(weights[row, 3], 1 if renormalize else total / 2.5, rtol=1e-6)
    with pytest.raises(compat.Refused, match="num_fused_shared_experts is 2, expected 0 or 1"):
        module("moe_topk_sigmoid").topk_sigmoid(logits, weights, ids, None, renormalize, bias, 2.5, 2)
    with pytest.raises(compat.Refused, match="topk_weights has shape"):
        module("moe_topk_sigmoid").topk_sigmoid(logits, weights[:4], ids[:4], None, renormalize, bias, 2.5, shared)


def quantized_by_traits(x, group, powers, fused=False, masked=None, whole=False, words_apart=False):
    """What the kernel writes into outputs that hold 7 before, scales row by row or with rows as neighbours."""
    *lead, width = x.shape
    width = width // 2 if fused else width
    groups = width // group
    columns = -(-groups // 4) if powers else groups
    codes = np.full((*lead, width), 7, np.int8 if whole else np.uint8)
    scales = np.full((*lead, columns), 7, np.int32 if powers else np.float32)
    if words_apart:
        scales = scales.swapaxes(-1, -2).copy().swapaxes(-1, -2)
    said = ["fp16_t", "int8_t" if whole else "fp8_e4m3_t", str(group), *(str(flag).lower() for flag in (powers, not words_apart, groups % 4 == 0, fused, False))]
    called = module("per_token_group_quant", *said, "flat" if masked is None else "masked").per_token_group_quant
    called(x, codes if whole else dodona.as_dtype(codes, "f8_e4m3"), scales, *([] if masked is None else [masked, -1]))
    return codes, scales


@pytest.mark.parametrize("powers", [False, True])
@pytest.mark.parametrize("fused", [False, True])
def test_groups_are_quantized_whatever_the_layout_of_their_scales(powers, fused):
    x = f16(5, 1536)
    rows = dodona.silu_and_mul(x, round_activation="yes") if fused else x
    codes, scales = (np.asarray(getattr(part, "array", part)) for part in dodona.sgl_per_token_group_quant_8bit(rows, scale_ue8m0=powers, enable_v2=True))
    for apart in (False, True):
        made = quantized_by_traits(x, 128, powers, fused, words_apart=apart)
        assert made[0].tobytes() == codes.tobytes() and np.array_equal(made[1], scales)
    whole = x.reshape(1, 5, 1536)
    made = quantized_by_traits(np.concatenate([whole, whole]), 128, powers, fused, masked=np.array([2, 5]))
    for expert, count in ((0, 2), (1, 5)):
        assert made[0][expert, :count].tobytes() == codes[:count].tobytes() and np.array_equal(made[1][expert, :count], scales[:count])
        assert (made[0][expert, count:] == 7).all() and (made[1][expert, count:] == 7).all()


def test_groups_of_256_and_whole_numbers():
    x = f16(3, 512)
    largest = np.abs(x.astype(np.float32)).reshape(3, 2, 256).max(-1)
    assert np.array_equal(quantized_by_traits(x, 256, False)[1], largest * np.float32(1 / 448))
    codes, scales = quantized_by_traits(x, 128, False, whole=True)
    assert np.abs(codes * np.repeat(scales, 128, axis=1) - x).max() <= scales.max()


@pytest.mark.parametrize("powers", [False, True])
@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_no_code_is_none(powers, poison):
    x = f16(2, 256)
    x[1, 9] = poison
    codes = quantized_by_traits(x, 128, powers)[0]
    assert not (codes & 0x7F == 0x7F).any() and (codes[1, 9] == 0x7E or powers and not np.isnan(poison))
    assert np.array_equal(codes[0], quantized_by_traits(x[:1], 128, powers)[0][0])
