"""Mixtures of experts of codes that share exponents, in FlashInfer's place, against formulas in torch."""

import pytest

torch = pytest.importorskip("torch")

from dodona import compat
from dodona.compat import flashinfer as F

TOKENS, HIDDEN, INNER, EXPERTS, CHOSEN = 6, 128, 64, 4, 2


def quantized(matrix, four):
    """Codes as they are handed over, exponents in tiles, and the numbers."""
    if four:
        codes, scales = F.fp4_quantize(matrix, None, 32, True, True)
        return codes, scales.flatten(), F.mxfp4_dequantize(codes, scales.flatten())
    codes, scales = F.mxfp8_quantize(matrix, True, 32)
    return codes, scales.view(torch.uint8).flatten(), F.mxfp8_dequantize_host(codes.view(torch.uint8), scales.view(torch.uint8).flatten(), True)


@pytest.fixture
def case(request):
    torch.manual_seed(3)
    four, kind = request.param
    x = torch.randn(TOKENS, HIDDEN).to(kind)
    parts = [[quantized((torch.randn(*shape) / 5).to(torch.bfloat16), four) for _ in range(EXPERTS)] for shape in ((2 * INNER, HIDDEN), (HIDDEN, INNER))]
    (w1, s1, n1), (w2, s2, n2) = (tuple(torch.stack(group) for group in zip(*part)) for part in parts)
    codes, scales = F.mxfp8_quantize(x, True, 32)
    numbers = F.mxfp8_dequantize_host(codes.view(torch.uint8), scales.view(torch.uint8).flatten(), True)
    ids, weights = torch.stack([torch.randperm(EXPERTS)[:CHOSEN] for _ in range(TOKENS)]).int(), torch.rand(TOKENS, CHOSEN)
    as_words = (lambda w: w.contiguous().view(torch.int64)) if four else (lambda w: w)
    given = [codes, ids, weights, as_words(w1), as_words(w2), kind]
    return given, [s1.view(torch.int32), torch.ones(EXPERTS), s2.view(torch.int32), torch.ones(EXPERTS)], scales, (numbers, n1, n2), kind, x


def wanted(given, numbers, kind, alpha=1.0, beta=0.0, limit=float("inf"), factor=1.0):
    _, ids, weights, *_ = given
    x, w1, w2 = numbers
    out = torch.zeros(TOKENS, HIDDEN)
    for token in range(TOKENS):
        for choice in range(CHOSEN):
            expert = int(ids[token, choice])
            if not 0 <= expert < EXPERTS:
                continue
            up, gate = (factor * (w1[expert] @ x[token])).to(kind).float().chunk(2)
            gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
            middle = (gate * torch.sigmoid(alpha * gate) * (up + beta)).to(kind)[None]
            codes, scales = F.mxfp8_quantize(middle, True, 32)
            again = F.mxfp8_dequantize_host(codes.view(torch.uint8), scales.view(torch.uint8).flatten(), True)[0]
            out[token] += weights[token, choice] * (w2[expert] @ again).to(kind).float()
    return out


CASES = pytest.mark.parametrize("case", [(True, torch.bfloat16), (True, torch.float16), (False, torch.bfloat16)], indirect=True)


@CASES
def test_rows_of_eight_bits_meet_weights_of_eight_or_four(case):
    given, scales, of_rows, numbers, kind, x = case
    (made,) = F.cutlass_fused_moe(*given, scales, input_sf=of_rows, use_mxfp8_act_scaling=True)
    assert made.dtype == kind
    # A middle number at the edge of two codes may fall on either: a sixteenth of one of 64 terms.
    torch.testing.assert_close(made.float(), wanted(given, numbers, kind), atol=0.02, rtol=0.02)
    out = torch.full((TOKENS, HIDDEN), 7.0, dtype=kind)
    F.cutlass_fused_moe(*given, scales, input_sf=of_rows, use_mxfp8_act_scaling=True, output=out)
    assert torch.equal(out, made)
    linear = F.mxfp8_quantize(x, False, 32)[1]
    again = F.cutlass_fused_moe(*given, scales, input_sf=linear, swizzled_input_sf=False, use_mxfp8_act_scaling=True)
    assert torch.equal(again[0], made)


@CASES
def test_limits_factors_and_other_ranks_experts(case):
    given, scales, of_rows, numbers, kind, x = case
    each = lambda value: torch.full((EXPERTS,), value)
    how = {"input_sf": of_rows, "use_mxfp8_act_scaling": True}
    made = F.cutlass_fused_moe(*given, scales, swiglu_alpha=each(1.7), swiglu_beta=each(1.0), swiglu_limit=each(0.5), **how)[0]
    torch.testing.assert_close(made.float(), wanted(given, numbers, kind, 1.7, 1.0, 0.5), atol=0.03, rtol=0.02)
    double = [scales[0], each(2.0), *scales[2:]]
    torch.testing.assert_close(F.cutlass_fused_moe(*given, double, **how)[0].float(), wanted(given, numbers, kind, factor=2.0), atol=0.06, rtol=0.02)
    given[1] = given[1] + EXPERTS * (torch.arange(TOKENS)[:, None] % 2).int()
    torch.testing.assert_close(F.cutlass_fused_moe(*given, scales, ep_size=2, **how)[0].float(), wanted(given, numbers, kind), atol=0.02, rtol=0.02)


@pytest.mark.parametrize("case", [(True, torch.bfloat16)], indirect=True)
def test_what_does_not_fit_is_refused(case):
    given, scales, of_rows, *_ = case
    how = {"input_sf": of_rows, "use_mxfp8_act_scaling": True}
    for argument, changed, more in (
        ("quant_scales", given, {**how, "quant_scales": scales[:2]}), ("input_sf", given, {**how, "input_sf": of_rows[:-1]}), ("input_sf", given, {"use_mxfp8_act_scaling": True}),
        ("fc1_expert_weights", [*given[:3], given[3][:, :64], *given[4:]], how), ("token_final_scales", [*given[:2], given[2][:3], *given[3:]], how),
        ("fc1_expert_biases", given, {**how, "fc1_expert_biases": torch.zeros(EXPERTS, 2 * INNER)}),
    ):  # fmt: skip
        with pytest.raises(compat.Refused, match=argument):
            F.cutlass_fused_moe(*changed, **{"quant_scales": scales, **more})
