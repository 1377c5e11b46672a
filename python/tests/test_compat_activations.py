"""Activations of whole mixtures of experts in upstream's place: names and numbers, and what they are here."""

import numpy as np
import pytest

import dodona
from dodona import compat
from dodona.compat import flashinfer
from upstream_calls import UpstreamCall

SIZES = "T=3 X=64 K=1 L=2 I=32 X1=64 H=64 Y=32 --dtype input=f16 --dtype fc1_expert_weights=f16 --attr output_dtype=f16"
TRTLLM = "T=3 H=128 --attr num_experts=4 --attr top_k=1 --attr intermediate_size=128 --attr local_num_experts=4 --attr routing_method_type=Renormalize"


def curve(name, g):
    if name == "gelu":
        from math import erf

        return 0.5 * g * (1 + np.vectorize(erf)(g / np.sqrt(2)))
    if name == "gelu_tanh":
        return 0.5 * g * (1 + np.tanh(np.sqrt(2 / np.pi) * (g + 0.044715 * g**3)))
    return {"silu": lambda: g / (1 + np.exp(-g)), "relu": lambda: np.maximum(g, 0), "relu2": lambda: np.maximum(g, 0) ** 2, "identity": lambda: g}[name]()


def cutlass(case, activation, **more):
    a = {**case.arguments(), **more}
    names = ("input", "token_selected_experts", "token_final_scales", "fc1_expert_weights", "fc2_expert_weights")
    limits = {name: a[name] for name in ("swiglu_alpha", "swiglu_limit") if name in a}
    (out,) = flashinfer.cutlass_fused_moe(*(a[name] for name in names), np.dtype(np.float16), None, activation_type=activation, **limits)
    return a, np.asarray(out, np.float64)


ACTIVATION = flashinfer.fused_moe.ActivationType


@pytest.mark.parametrize(
    "number, name, gated",
    [(0, "gelu", False), (1, "relu", False), (2, "silu", False), (3, "silu", True), (4, "gelu", True), (5, "silu", True), (6, "relu2", False), (8, "gelu_tanh", True), (9, "identity", False)],
)
def test_upstreams_numbers_are_these_curves(number, name, gated):
    assert ACTIVATION(number).name == ["Gelu", "Relu", "Silu", "Swiglu", "Geglu", "SwigluBias", "Relu2", "SwigluStep", "GegluTanh", "Identity"][number]
    case = dodona.gen(f"cutlass_fused_moe {SIZES} --attr gated={str(gated).lower()} --attr gate_activation={name}")
    a, out = cutlass(case, number)
    assert (out == cutlass(case, ACTIVATION(number))[1]).all()
    ids, weights = a["token_selected_experts"][:, 0], a["token_final_scales"][:, 0]
    for t in range(3):
        sums = a["fc1_expert_weights"][ids[t]].astype(np.float64) @ a["input"][t].astype(np.float64)
        h = curve(name, sums[-32:]) * (sums[:32] if gated else 1)
        wanted = weights[t] * (a["fc2_expert_weights"][ids[t]].astype(np.float64) @ h)
        np.testing.assert_allclose(out[t], wanted, rtol=0.02, atol=0.01 * np.abs(wanted).max())


def test_the_step_of_swiglu_limits_what_the_gate_becomes_to_7_where_nothing_is_said():
    case = dodona.gen(f"cutlass_fused_moe {SIZES}")
    wide = {"input": (8 * case.arguments()["input"]).astype(np.float16)}
    a, out = cutlass(case, 7, **wide)
    limit = np.full(2, 7, np.float32)
    given = {**a, "swiglu_limit": limit, "limited": "activated"}
    assert (out == np.asarray(dodona.cutlass_fused_moe(**given), np.float64)).all()
    assert (out != cutlass(case, 3, **wide)[1]).any()
    assert (out == cutlass(case, ACTIVATION.SwigluStep, **wide, swiglu_limit=limit)[1]).all()


@pytest.mark.parametrize("kernel", ["trtllm_bf16_moe", "trtllm_fp4_block_scale_moe", "trtllm_fp8_per_tensor_scale_moe"])
@pytest.mark.parametrize("number, more", [(4, "--attr gate_activation=gelu"), (6, "--attr gate_activation=relu2 --attr gated=false"), (9, "--attr gate_activation=identity --attr gated=false")])
def test_trtllm_takes_four_of_them(kernel, number, more):
    call = UpstreamCall("flashinfer", kernel, dodona.gen(f"{kernel} {TRTLLM} {more} --without routing_bias"))
    function = getattr(flashinfer.fused_moe, kernel)
    assert call.arguments["activation_type"] == number
    for kind in (number, ACTIVATION(number)):
        call.arguments["activation_type"] = kind
        assert call.case.check(**call.run(function)[1])
    call.arguments["activation_type"] = 0
    with pytest.raises(compat.NotOffered, match=rf"{kernel}: activation_type is 0, offered are Swiglu \(3\), Geglu \(4\), Relu2 \(6\), Identity \(9\)"):
        call.run(function)


def test_geglu_is_what_the_old_number_of_gates_says_too():
    kernel = "trtllm_fp4_block_scale_moe"
    call = UpstreamCall("flashinfer", kernel, dodona.gen(f"{kernel} {TRTLLM} --attr gate_activation=gelu --without routing_bias"))
    del call.arguments["activation_type"]
    for gate in (1, flashinfer.GatedActType.GeGlu):
        call.arguments["gated_act_type"] = gate
        assert call.case.check(**call.run(flashinfer.fused_moe.trtllm_fp4_block_scale_moe)[1])
    call.arguments["gated_act_type"] = 2
    with pytest.raises(compat.NotOffered, match="gated_act_type is 2"):
        call.run(flashinfer.fused_moe.trtllm_fp4_block_scale_moe)


@pytest.mark.parametrize("number", [10, 11, -1])
def test_others_are_not_offered(number):
    case = dodona.gen(f"cutlass_fused_moe {SIZES}")
    with pytest.raises(compat.NotOffered, match=f"cutlass_fused_moe: activation_type is {number}, offered are Gelu"):
        cutlass(case, number)


def test_a_parameter_that_an_activation_does_not_read_is_an_error():
    case = dodona.gen(f"cutlass_fused_moe {SIZES} --attr gate_activation=gelu")
    with pytest.raises(compat.Refused, match="swiglu_alpha is there, expected none with gate_activation=gelu, which does not read it"):
        cutlass(case, 4, swiglu_alpha=np.ones(2, np.float32))


def test_rows_of_nvfp4_have_scales_of_their_own_where_asked_for():
    x = (np.random.default_rng(3).standard_normal((4, 32)) * [[1], [4], [0.1], [30]]).astype(np.float16)
    layout = flashinfer.SfLayout.layout_linear
    for base in (1 / (448 * 6), np.array([1 / (448 * 6)], np.float32)):
        codes, scales, rows = flashinfer.nvfp4_quantize(x, base, sfLayout=layout, per_token_activation=True)
        assert (rows == np.abs(x).max(1).astype(np.float32) * np.float32(1 / (448 * 6))).all()
        values = flashinfer.e2m1_and_ufp8sf_scale_to_float(codes, np.asarray(scales).reshape(-1), np.ones(1, np.float32), 16, 1, False)
        assert (np.abs(np.asarray(values) * rows[:, None] - x) <= 0.2 * np.abs(x).max(1, keepdims=True)).all()
    assert len(flashinfer.nvfp4_quantize(x, np.ones(1, np.float32), sfLayout=layout)) == 2
    with pytest.raises(compat.Refused, match="nvfp4_quantize: a has dtype f8_e4m3, expected bf16 or f16 with per_token_activation=true"):
        flashinfer.nvfp4_quantize(dodona.as_dtype(np.zeros((4, 32), np.uint8), "f8_e4m3"), 1.0, per_token_activation=True)
