"""Functions of upstream's that are an op with something set: norms with a bias, and draws without one of their bounds."""

import numpy as np
import pytest

from dodona import compat
from dodona.compat import flashinfer, sgl_kernel

SAID = {"seed": 5, "offset": 8}


def probabilities(rows=4, tokens=50):
    return np.random.default_rng(3).dirichlet(np.ones(tokens), rows).astype(np.float32)


@pytest.mark.parametrize("package", [flashinfer, sgl_kernel])
def test_gemmas_norms_add_one_to_every_weight(package):
    rng = np.random.default_rng(1)
    x, residual, weight = (rng.standard_normal(shape, np.float32) for shape in ((3, 64), (3, 64), 64))
    normal = lambda rows: rows / np.sqrt((rows.astype(np.float64) ** 2).mean(-1, keepdims=True) + 1e-6) * (1 + weight)
    np.testing.assert_allclose(package.gemma_rmsnorm(x, weight), normal(x), rtol=1e-5)
    total, given = x + residual, (x.copy(), residual.copy())
    assert package.gemma_fused_add_rmsnorm(*given, weight) is None
    np.testing.assert_allclose(given[0], normal(total), rtol=1e-5)
    assert np.array_equal(given[1], total)


def test_without_a_bound_the_first_token_that_is_drawn_is_the_sample():
    probs = probabilities()
    assert np.array_equal(flashinfer.sampling_from_probs(probs, **SAID), flashinfer.top_p_sampling_from_probs(probs, 1.0, **SAID))
    assert np.array_equal(flashinfer.top_k_sampling_from_probs(probs, 50, **SAID), flashinfer.sampling_from_probs(probs, **SAID))
    assert np.array_equal(flashinfer.top_k_sampling_from_probs(probs, 1, **SAID), probs.argmax(-1))


def test_counts_are_those_of_output_rows():
    probs, rows, counts = probabilities(), np.array([3, 3, 0, 2, 1]), np.array([1, 50, 2, 3, 1], np.int32)
    drawn = flashinfer.top_k_sampling_from_probs(probs, counts, rows, **SAID)
    assert drawn.dtype == np.int64 and np.array_equal(drawn, flashinfer.top_k_sampling_from_probs(probs[rows], counts, **SAID))
    assert drawn[0] == probs[3].argmax() and drawn[4] == probs[1].argmax()
    with pytest.raises(compat.Refused, match="indices names row 4 of 4"):
        flashinfer.top_k_sampling_from_probs(probs, counts, rows + 1)


def test_rows_with_nothing_to_draw_are_not_valid():
    probs = probabilities()
    probs[1] = 0
    bounds = {"sampling_from_probs": (), "top_k_sampling_from_probs": (9,), "top_p_sampling_from_probs": (0.7,), "min_p_sampling_from_probs": (0.1,)}
    for name, bound in bounds.items():
        draw = getattr(flashinfer, name)
        samples, valid = draw(probs, *bound, return_valid=True, **SAID)
        zeros_are_drawn = name.startswith("min_p")
        assert valid.tolist() == [True, zeros_are_drawn, True, True], name
        assert samples[1] == (49 if zeros_are_drawn else 0)
        assert np.array_equal(samples[2:], draw(np.where(probs == 0, np.float32(1 / 50), probs), *bound, **SAID)[2:])
        rows = np.array([1, 2], np.int64)
        assert draw(probs, *bound, indices=rows, return_valid=True)[1].tolist() == [zeros_are_drawn, True]
    with pytest.raises(ValueError):
        flashinfer.sampling_from_probs(probs)
