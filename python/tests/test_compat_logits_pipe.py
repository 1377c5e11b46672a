"""Pipelines of FlashInfer's logits processors: what they become, and that they are the functions of flashinfer.sampling."""

import numpy as np
import pytest

from dodona.compat.flashinfer import logits_processor as pipes
from dodona.compat.flashinfer import sampling
from dodona.compat.flashinfer.logits_processor import operators

LOGITS, PROBS = pipes.TensorType.LOGITS, pipes.TensorType.PROBS
PARTS = [pipes.Temperature(), pipes.Softmax(), pipes.TopK(), pipes.Sample()]


def logits(seed=1):
    return np.random.default_rng(seed).standard_normal((4, 64), np.float32) * 3


def test_processors_become_operators_and_neighbours_become_one():
    pipe = pipes.LogitsPipe(PARTS)
    made = "LogitsPipe([Temperature -> Softmax -> TopK -> Sample], ops=[TemperatureOp -> SoftmaxOp -> ProbsTopKOp -> ProbsSampleOp]"
    assert repr(pipe) == f"{made}, compiled_ops=[FusedTemperatureSoftmaxOp -> FusedProbsTopKSampleOp])"
    assert pipe.initial_type is LOGITS and isinstance(pipe.compiled_ops[0], operators.FusedTemperatureSoftmaxOp)
    assert pipes.LogitsPipe(PARTS, compile=False).compiled_ops is None
    apart = pipes.LogitsPipe([pipes.TopK(), pipes.TopP(), pipes.Sample()], input_type=PROBS)
    assert [type(op).__name__ for op in apart.compiled_ops] == ["ProbsTopKOp", "FusedProbsTopPSampleOp"]
    joint = pipes.LogitsPipe([pipes.TopK(joint_topk_topp=True), pipes.TopP(), pipes.Sample()], input_type=PROBS)
    assert [type(op).__name__ for op in joint.compiled_ops] == ["FusedProbsTopKTopPSampleOp"]


def test_each_is_the_function_of_its_name():
    x = logits()
    p = sampling.softmax(x)
    share = np.array([0.2, 0.3, 0.9, 1], np.float32)
    kept = np.where(p >= share[:, None] * p.max(-1, keepdims=True), p, 0)
    said = {"generator": None, "indices": None}
    for parts, given, kind, keywords, wanted in (
        ([pipes.Temperature(), pipes.Softmax()], x, None, {"temperature": 0.5}, sampling.softmax(x, temperature=0.5)),
        ([pipes.Temperature()], x, None, {"temperature": 0.5}, x / 0.5),
        ([pipes.TopK()], x, LOGITS, {"top_k": 3}, sampling.top_k_mask_logits(x, 3)),
        ([pipes.TopK()], p, PROBS, {"top_k": 3}, sampling.top_k_renorm_probs(p, 3)),
        ([pipes.TopP()], p, None, {"top_p": 0.4}, sampling.top_p_renorm_probs(p, 0.4)),
        ([pipes.MinP()], p, None, {"min_p": share}, kept / kept.sum(-1, keepdims=True)),
        ([pipes.Sample()], p, PROBS, said, sampling.sampling_from_probs(p)),
        ([pipes.Sample()], x, LOGITS, said, sampling.sampling_from_logits(x)),
        ([pipes.MinP(), pipes.Sample()], p, None, {"min_p": 0.1}, sampling.min_p_sampling_from_probs(p, 0.1)),
        ([pipes.TopK(joint_topk_topp=True), pipes.TopP(), pipes.Sample()], p, PROBS, {"top_k": 5, "top_p": 0.8}, sampling.top_k_top_p_sampling_from_probs(p, 5, 0.8, filter_apply_order="joint")),
    ):
        assert np.array_equal(pipes.LogitsPipe(parts, input_type=kind)(given, **keywords), wanted), parts
    assert np.allclose(pipes.LogitsPipe([pipes.Softmax()])(x), p, atol=1e-6)


def test_a_tag_says_what_numbers_mean():
    tagged = pipes.TaggedTensor.probs(sampling.softmax(logits()))
    assert tagged.type is PROBS and tagged.shape == (4, 64) and tagged.size(1) == 64
    with pytest.raises(ValueError, match="cannot accept input type PROBS"):
        pipes.LogitsPipe([pipes.Softmax()])(tagged)


@pytest.mark.parametrize(
    "parts, kind, words",
    [
        ([], None, "cannot be empty"),
        ([pipes.TopK()], None, "can accept both LOGITS and PROBS"),
        ([pipes.Softmax(), pipes.Softmax()], None, "Softmax can only be applied to LOGITS, got PROBS"),
        ([pipes.Softmax(), pipes.Sample(), pipes.TopK()], None, "got INDICES"),
        ([pipes.TopP()], LOGITS, "TopP can only be applied to PROBS, got LOGITS"),
    ],
)
def test_pipes_that_cannot_be(parts, kind, words):
    with pytest.raises(ValueError, match=words):
        pipes.LogitsPipe(parts, input_type=kind)


@pytest.mark.parametrize(
    "keywords, words", [({"top_k": 3}, "'temperature' not provided"), ({"temperature": 0.0, "top_k": 3}, "positive float"), ({"temperature": 1.0, "top_k": 0}, "positive integer")]
)
def test_parameters_that_are_none(keywords, words):
    with pytest.raises(ValueError, match=words):
        pipes.LogitsPipe(PARTS)(logits(), **keywords)


def test_rules_and_checks_of_the_users_own():
    def build(window):
        return operators.SoftmaxOp()

    rule = pipes.FusionRule((operators.TemperatureOp, operators.SoftmaxOp), lambda window: True, build, 200)
    pipe = pipes.LogitsPipe(PARTS[:2], custom_fusion_rules=[rule])
    assert [type(op).__name__ for op in pipe.compiled_ops] == ["SoftmaxOp"]

    def none_at_all(ops):
        raise pipes.CompileError("none of it")

    with pytest.raises(ValueError, match="none of it"):
        pipes.LogitsPipe(PARTS, custom_validity_checks=[none_at_all])
