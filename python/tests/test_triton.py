"""dodona.triton: kernels compiled by the installed Triton for a GPU that is not there. Values are held against plain NumPy; bits of a GPU are held in
test_ptx.py, whose kernels these are."""

import numpy as np
import pytest

import dodona

triton = pytest.importorskip("triton", reason="Triton is not installed")
tl = triton.language

import triton_kernels as kernels  # noqa: E402

import dodona.triton  # noqa: E402
from dodona import ptx  # noqa: E402


@pytest.fixture
def rng():
    return np.random.default_rng(5)


def softmax(x):
    power = np.exp(x - x.max(1, keepdims=True))
    return power / power.sum(1, keepdims=True)


def test_a_kernel_runs_on_numpy_arrays_and_writes_them(rng):
    x, y = rng.standard_normal((3, 100), np.float32), np.zeros((3, 100), np.float32)
    report = dodona.triton.run(kernels.softmax_rows)[(3,)](x, y, 100, 100, BLOCK=128)
    assert np.allclose(y, softmax(x.astype(np.float64)), rtol=1e-5)
    assert (report.blocks, report.threads_per_block) == (3, 128)


def test_a_grid_of_no_blocks_launches_nothing(rng):
    for grid in ((0,), (3, 0), lambda meta: (0, 2, 2)):
        x, y = rng.standard_normal((3, 100), np.float32), np.full((3, 100), 7, np.float32)
        assert dodona.triton.run(kernels.softmax_rows)[grid](x, y, 100, 100, BLOCK=128) is None
        assert (y == 7).all()


def test_a_grid_may_be_a_function_and_options_reach_triton(rng):
    x, y = rng.standard_normal((3, 100), np.float32), np.zeros((3, 100), np.float32)
    report = dodona.triton.run(kernels.softmax_rows)[lambda meta: (300 // meta["columns"],)](x, y, columns=100, stride=100, BLOCK=128, num_warps=2)
    assert report.threads_per_block == 64 and np.allclose(y.sum(1), 1)


@pytest.mark.parametrize("gpu", ["h100", "a100", "l40s"])
def test_a_product_on_each_gpu(rng, gpu):
    a, b, c = rng.standard_normal((64, 64)).astype(np.float16), rng.standard_normal((64, 64)).astype(np.float16), np.zeros((64, 64), np.float32)
    dodona.triton.run(kernels.matmul, gpu=gpu)[(1, 1)](a, b, c, 64, 64, 64, BM=64, BN=64, BK=32, WIDE=tl.float32)
    assert np.allclose(c, a.astype(np.float64) @ b.astype(np.float64).T, rtol=1e-3, atol=1e-3)
    compiled = dodona.triton.compile(kernels.matmul, a, b, c, 64, 64, 64, gpu=gpu, BM=64, BN=64, BK=32, WIDE=tl.float32)
    assert f".target sm_{compiled.arch}" in compiled.ptx and ("wgmma" in compiled.ptx) == (gpu == "h100")
    assert compiled.constants["BM"] == 64 and [name for name, _ in compiled.parameters] == ["a_ptr", "b_ptr", "c_ptr", "M", "N", "K"]


def scale_all(x, y, factor):
    """A wrapper as libraries have them."""
    kernels.softmax_rows[(x.shape[0],)](x, y, x.shape[1], x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    y *= factor
    return y


def test_wrappers_run_as_they_are(rng):
    x = rng.standard_normal((4, 50), np.float32)
    with dodona.triton.here() as reports:
        y = scale_all(x, np.zeros_like(x), 2.0)
    assert np.allclose(y, 2 * softmax(x.astype(np.float64)), rtol=1e-5) and len(reports) == 1


def test_afterwards_triton_is_as_before():
    from triton.runtime import autotuner, jit

    before = jit.JITFunction.run, autotuner.Autotuner.run
    with pytest.raises(ZeroDivisionError):
        with dodona.triton.here():
            raise ZeroDivisionError
    assert (jit.JITFunction.run, autotuner.Autotuner.run) == before


def tuned_kernel(configs):
    return triton.autotune(configs=configs, key=["columns"])(kernels.softmax_rows)


def test_a_tuned_kernel_wants_its_configuration_named(rng):
    x, y = rng.standard_normal((2, 40), np.float32), np.zeros((2, 40), np.float32)
    two = tuned_kernel([triton.Config({"BLOCK": 64}, num_warps=1), triton.Config({"BLOCK": 128}, num_warps=4)])
    with pytest.raises(dodona.Error, match=r"config must name one of softmax_rows's 2 configurations(.|\n)*1: BLOCK: 128"):
        dodona.triton.run(two)[(2,)](x, y, 40, 40)
    for config, threads in ((0, 32), (1, 128), (two.configs[1], 128), (lambda configs, _: configs[0], 32), ({"softmax_rows": 1}, 128)):
        assert dodona.triton.run(two, config=config)[(2,)](x, y, 40, 40).threads_per_block == threads
        assert np.allclose(y.sum(1), 1)
    with pytest.raises(dodona.Error, match="config must be from 0 to 1"):
        dodona.triton.run(two, config=2)[(2,)](x, y, 40, 40)
    assert dodona.triton.run(tuned_kernel(two.configs[:1]))[(2,)](x, y, 40, 40).threads_per_block == 32


def test_heuristics_are_asked(rng):
    x, y = rng.standard_normal((2, 40), np.float32), np.zeros((2, 40), np.float32)
    kernel = triton.heuristics({"BLOCK": lambda given: triton.next_power_of_2(given["columns"])})(kernels.softmax_rows)
    dodona.triton.run(kernel)[(2,)](x, y, 40, 40)
    assert np.allclose(y.sum(1), 1)


def test_a_finding_names_the_argument_and_the_line(rng):
    x, y = rng.standard_normal((2, 40), np.float32), np.zeros((1, 40), np.float32)
    with pytest.raises(ptx.KernelError, match=r"y_ptr\+0x") as raised:
        dodona.triton.run(kernels.softmax_rows)[(2,)](x, y, 40, 40, BLOCK=64)
    assert "triton_kernels.py:" in raised.value.report.findings[0].source


def test_bulk_copies_through_descriptors(rng):
    torch = pytest.importorskip("torch", reason="Triton's descriptors on the host want torch, which is not installed")
    from triton.tools.tensor_descriptor import TensorDescriptor

    a, b = (torch.from_numpy(rng.standard_normal((64, 128)).astype(np.float32)).bfloat16() for _ in range(2))
    c = torch.zeros(64, 64, dtype=torch.bfloat16)
    blocks = [TensorDescriptor.from_tensor(tensor, [64, 64]) for tensor in (a, b, c)]
    dodona.triton.run(kernels.matmul_descriptors)[(1, 1)](*blocks, 128, BM=64, BN=64, BK=64)
    assert torch.allclose(c.float(), a.float() @ b.float().T, rtol=0.02, atol=0.1)


def test_descriptors_that_the_kernel_makes(rng):
    x = rng.standard_normal((40, 64)).astype(np.float32)
    y = np.zeros_like(x)
    report = dodona.triton.run(kernels.twice_by_descriptors)[(2,)](x, y, 40, 64, BM=32, BN=64)
    assert np.array_equal(y, x + x) and report.findings == ()


def test_triton_leaves_no_sum_open_or_its_machine_code_says_how_it_is_read(rng):
    x, y = rng.standard_normal(64).astype(np.float32), np.zeros(64, np.float32)
    made = dodona.triton.compile(kernels.open_sum, x, y, BLOCK=64)
    found = dodona.triton.readings(made)
    assert made.cubin and len(found.open) == 1 and found.settled
    dodona.triton.run(kernels.open_sum)[(1,)](x, y, BLOCK=64)
    exact = x.astype(np.float64)
    assert np.array_equal(y, (exact * exact + exact).astype(np.float32) if found.open[0].fused else x * x + x)


@pytest.mark.parametrize("call, message", [
    (lambda: dodona.triton.run(kernels.matmul, gpu="v100"), "gpu must be one of h100"),
    (lambda: dodona.triton.run(softmax), "kernel is function, expected a function under @triton.jit"),
    (lambda: dodona.triton.run(kernels.softmax_rows)[(1, 1, 1, 1)](np.zeros((1, 4), np.float32), np.zeros((1, 4), np.float32), 4, 4, BLOCK=16), "grid has 4 dimensions"),
])  # fmt: skip
def test_what_cannot_be_is_one_clear_error(call, message):
    with pytest.raises(dodona.Error, match=message):
        runner = call()
        runner[(1,)](np.zeros((1, 4), np.float32), np.zeros((1, 4), np.float32), 4, 4, BLOCK=16)


def test_the_fixture(pytester):
    pytester.makepyfile("""
        import numpy as np
        import triton
        import triton.language as tl

        @triton.jit
        def twice(x, y, BLOCK: tl.constexpr):
            at = tl.arange(0, BLOCK)
            tl.store(y + at, 2 * tl.load(x + at))

        def test_twice(dodona):
            x, y = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
            dodona.triton.run(twice)[(1,)](x, y, BLOCK=64)
            assert list(y) == list(2 * x)
    """)
    pytester.runpytest("-p", "dodona.pytest_plugin").assert_outcomes(passed=1)
