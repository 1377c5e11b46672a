"""Calls with real torch tensors. Types that an older torch lacks are raw codes with their name (dodona.as_dtype)."""

import gc
import sys

import numpy as np
import pytest
import test_fib
import torch
from test_fib import exported  # noqa: F401, a fixture
from test_ops import outputs_of

import dodona
from dodona import compat
from dodona._ops import plan_of

KINDS = {"bf16": "bfloat16", "f8_e4m3": "float8_e4m3fn", "f8_e5m2": "float8_e5m2", "f8_e8m0": "float8_e8m0fnu"}


def to_torch(array, dtype):
    """The same memory as a torch tensor."""
    if dtype not in KINDS:
        return torch.from_numpy(array)
    raw = torch.from_numpy(array.view({1: np.uint8, 2: np.int16}[array.dtype.itemsize]))
    kind = getattr(torch, KINDS[dtype], None)
    return dodona.as_dtype(raw, dtype) if kind is None else raw.view(kind)


def bytes_of(value):
    value = value.array if isinstance(value, dodona.Typed) else value
    if not isinstance(value, torch.Tensor):
        return np.asarray(value).tobytes()
    flat = value.contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""


def torch_call(case, function):
    """Runs the case's call with torch tensors; gives outputs by name, and the arguments."""
    arguments = case.arguments()
    for name, value in arguments.items():
        if name in case.inputs and not isinstance(value, bool):
            arguments[name] = to_torch(value.array if isinstance(value, dodona.Typed) else value, case.dtypes[name])
    return outputs_of(case, arguments, function(**arguments)), arguments


def assert_same(case, outputs):
    wanted = case.run()
    assert set(outputs) == set(wanted)
    for name, value in outputs.items():
        assert bytes_of(value) == wanted[name].tobytes(), (case.line, name)


@pytest.mark.parametrize("op", dodona.ops())
def test_every_case_line_gives_the_same_bytes(op):
    for line in dodona.schema(op)["cases"]:
        case = dodona.gen(f"{op} {line}")
        outputs, _ = torch_call(case, getattr(dodona, op))
        assert_same(case, outputs)
        for name, value in outputs.items():
            if case.inputs and not isinstance(value, (int, dodona.Typed)):
                assert isinstance(value, torch.Tensor), (line, name)


def test_code_written_against_upstream_runs_on_the_cpu(monkeypatch):
    monkeypatch.delitem(sys.modules, "sgl_kernel", raising=False)
    compat.install("sgl_kernel")
    try:
        import sgl_kernel

        x, residual = torch.randn(4, 512).bfloat16(), torch.randn(4, 512).bfloat16()
        weight = torch.ones(512, dtype=torch.bfloat16)
        case = dodona.Case.of("fused_add_rmsnorm", x, residual, weight, 1e-6)
        sgl_kernel.fused_add_rmsnorm(x, residual, weight, 1e-6)
        dodona.assert_close(case, input=x, residual=residual)
        gated = sgl_kernel.silu_and_mul(x)
        assert gated.shape == (4, 256) and gated.dtype == torch.bfloat16
        scale = torch.tensor([448.0 * 6.0]) / x.abs().max().float()
        codes, block_scales = sgl_kernel.scaled_fp4_quant(x, scale)
        assert codes.dtype == torch.uint8 and codes.shape == (4, 256)
        weights, weight_scales = sgl_kernel.scaled_fp4_quant(torch.randn(128, 512).bfloat16(), scale)
        alpha = 1 / (scale * scale)
        if hasattr(torch, "float8_e4m3fn"):
            assert block_scales.dtype == torch.float8_e4m3fn
            y = sgl_kernel.cutlass_scaled_fp4_mm(codes, weights, block_scales, weight_scales, alpha, torch.bfloat16)
            assert y.shape == (4, 128) and y.dtype == torch.bfloat16
            q, s = torch.empty(4, 512, dtype=torch.float8_e4m3fn), torch.empty(4, 1)
            sgl_kernel.sgl_per_token_quant_fp8(x, q, s)
            assert torch.allclose(q.float() * s, x.float(), rtol=0.07, atol=0.05)
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "sgl_kernel"]:
            del sys.modules[name]


# ---- memory ----


@pytest.fixture
def norm():
    generator = torch.Generator().manual_seed(1)
    return torch.randn(3, 64, generator=generator).bfloat16(), torch.randn(64, generator=generator).bfloat16()


def test_out_is_written_and_returned(norm):
    out = torch.empty_like(norm[0])
    address = out.data_ptr()
    assert dodona.rmsnorm(*norm, out=out) is out
    assert out.data_ptr() == address and torch.equal(out, dodona.rmsnorm(*norm))


def test_in_place_ops_keep_the_address_and_return_nothing(norm):
    x, residual = norm[0].clone(), norm[0] * 2
    addresses = x.data_ptr(), residual.data_ptr()
    assert dodona.fused_add_rmsnorm(x, residual, norm[1]) is None
    assert (x.data_ptr(), residual.data_ptr()) == addresses
    assert torch.equal(residual, norm[0] + norm[0] * 2)


def test_nothing_is_copied(norm):
    wide = torch.zeros(6, 128, dtype=torch.bfloat16)
    for view in (wide, wide[:, :64], wide[1:3], wide[::2]):
        seen = dodona.weak_ref_tensor(view)
        assert seen.data_ptr() == view.data_ptr() and seen.stride() == view.stride() and seen.dtype == view.dtype


def test_views_are_taken_as_they_lie(norm):
    wide = torch.full((6, 128), float("nan"), dtype=torch.bfloat16)
    wide[::2, 32:96] = norm[0]
    view = wide[::2, 32:96]
    normalized = dodona.rmsnorm(view, norm[1])
    assert torch.equal(normalized, dodona.rmsnorm(*norm)) and normalized.is_contiguous()
    dodona.rmsnorm(*norm, out=view)
    assert torch.equal(view, dodona.rmsnorm(*norm)) and wide[1::2].isnan().all() and wide[:, :32].isnan().all()


def test_results_live_as_long_as_they_are_held(norm):
    results = [dodona.rmsnorm(norm[0] + i, norm[1]) for i in range(50)]
    gc.collect()
    for i, result in enumerate(results):
        assert torch.equal(result, dodona.rmsnorm(norm[0] + i, norm[1]))
        result.add_(1)  # memory of its own


def test_parameters_are_tensors(norm):
    weight = torch.nn.Parameter(norm[1].float())
    x = norm[0].float().requires_grad_()
    y = dodona.rmsnorm(x, weight)
    assert not y.requires_grad and torch.equal(y, dodona.rmsnorm(x.detach(), weight.detach()))
    with torch.inference_mode():
        assert torch.equal(dodona.rmsnorm(x.detach().clone(), weight), y)


def test_subclasses_of_tensors_are_tensors(norm):
    class Marked(torch.Tensor):
        pass

    y = dodona.rmsnorm(*norm)
    for _ in range(2):
        assert torch.equal(dodona.rmsnorm(norm[0].as_subclass(Marked), norm[1]).as_subclass(torch.Tensor), y)


def test_numpy_arrays_may_stand_beside_tensors(norm):
    x, weight = norm[0].float(), norm[1].float()
    y = dodona.rmsnorm(x, weight.numpy())
    assert isinstance(y, torch.Tensor) and torch.equal(y, dodona.rmsnorm(x, weight))
    assert isinstance(dodona.rmsnorm(x.numpy(), weight), np.ndarray)


def test_empty_tensors_are_welcome(norm):
    y = dodona.rmsnorm(norm[0][:0], norm[1])
    assert y.shape == (0, 64) and y.dtype == torch.bfloat16


@pytest.mark.parametrize("dtype", [torch.float32, "torch.float32", "f32"])
def test_types_of_torch_name_attributes(dtype):
    a, b = torch.ones(1, 16, 16).bfloat16(), torch.ones(1, 16, 16).bfloat16()
    assert dodona.bmm(a, b, out_dtype=dtype).dtype == torch.float32


if hasattr(torch, "float8_e4m3fn"):

    def test_float8_goes_in_and_comes_out(norm):
        q, scale = dodona.sgl_per_token_quant_fp8(norm[0])
        assert q.dtype == torch.float8_e4m3fn and scale.dtype == torch.float32
        case = dodona.gen("mla_rope_quantize_fp8 T=2 N=3 Dr=16 Dn=32 P=64 --attr quantize_dtype=f8_e5m2")
        outputs, _ = torch_call(case, dodona.mla_rope_quantize_fp8)
        assert {value.dtype for value in outputs.values()} == {torch.float8_e5m2}
        assert_same(case, outputs)


def test_packed_codes_are_bytes():
    codes = torch.zeros(2, 4, dtype=torch.uint8)
    assert dodona.weak_ref_tensor(dodona.as_dtype(codes, "f4_e2m1")).data_ptr() == codes.data_ptr()
    with pytest.raises(ValueError, match="weak_ref_tensor: tensor has packed elements, expected contiguous bytes"):
        dodona.weak_ref_tensor(dodona.as_dtype(codes[:, :2], "f4_e2m1"))


def test_verdicts_take_torch_tensors(norm):
    case = dodona.Case.of("rmsnorm", *norm)
    y = dodona.rmsnorm(*norm)
    assert dodona.check(case, y)
    assert not dodona.check(case, torch.zeros_like(y))
    with pytest.raises(AssertionError):
        dodona.assert_close(case, output=y * 2)


# ---- bad input ----


def f32(*shape):
    return torch.ones(shape)


BAD_CALLS = {
    "dtype": (lambda: dodona.rmsnorm(f32(2, 8).int(), f32(8)), TypeError, "rmsnorm: input has dtype i32, expected one of"),
    "alien dtype": (lambda: dodona.rmsnorm(f32(2, 8).to(torch.complex64), f32(8)), TypeError, "rmsnorm: input has dtype torch.complex64"),
    "quantized": (
        lambda: dodona.rmsnorm(torch.quantize_per_tensor(f32(2, 8), 0.1, 0, torch.qint8), f32(8)), TypeError, "rmsnorm: input has dtype"
    ),
    "mixed dtypes": (lambda: dodona.rmsnorm(f32(2, 8), f32(8).half()), TypeError, "rmsnorm: weight has dtype f16"),
    "sparse": (lambda: dodona.rmsnorm(f32(2, 8).to_sparse(), f32(8)), TypeError, "rmsnorm: input has layout torch.sparse_coo"),
    "meta": (lambda: dodona.rmsnorm(f32(2, 8).to("meta"), f32(8)), ValueError, "rmsnorm: input is on the meta device"),
    "0-d": (lambda: dodona.rmsnorm(torch.tensor(1.0), f32(1)), ValueError, "rmsnorm: input has rank 0"),
    "shape": (lambda: dodona.rmsnorm(f32(2, 8), f32(7)), ValueError, r"rmsnorm: weight has shape \[7\], expected \[H\]"),
    "rank": (lambda: dodona.rmsnorm(f32(1, 1, 1, 1, 1, 1, 8), f32(8)), ValueError, "rmsnorm: input has rank 7"),
    "stride": (lambda: dodona.rmsnorm(f32(8, 2).T, f32(8)), ValueError, "rmsnorm: input has strides"),
    "not contiguous": (
        lambda: dodona.sgl_per_token_quant_fp8(f32(4, 16)[:, :8]), ValueError, "sgl_per_token_quant_fp8: input has strides .* contiguous"
    ),
    "shared elements": (lambda: dodona.rmsnorm(f32(2, 8), f32(8), out=f32(1, 8).expand(2, 8)), ValueError, "rmsnorm: output"),
    "shared memory": (lambda: overlapping(), ValueError, "rmsnorm: output shares memory with input"),
    "followed by autograd": (
        lambda: dodona.fused_add_rmsnorm(f32(2, 8).requires_grad_(), f32(2, 8), f32(8)), ValueError, "fused_add_rmsnorm: input requires grad"
    ),
    "word": (lambda: dodona.rmsnorm("x", f32(8)), TypeError, "rmsnorm: input is str"),
}  # fmt: skip


def overlapping():
    x = f32(4, 8)
    return dodona.rmsnorm(x[:2], x[3], out=x[1:3])


# What has been taken once is known by its type and dtype: that must not let anything else in.
@pytest.mark.parametrize("seen", [False, True])
@pytest.mark.parametrize("name", BAD_CALLS)
def test_bad_calls_name_op_and_argument(name, seen):
    call, kind, words = BAD_CALLS[name]
    for op in ("rmsnorm", "fused_add_rmsnorm", "sgl_per_token_quant_fp8"):
        for slot in plan_of(op).slots:
            slot.torch_codes.clear()
    if seen:
        dodona.rmsnorm(f32(2, 8), f32(8), out=f32(2, 8))
        dodona.fused_add_rmsnorm(f32(2, 8), f32(2, 8), f32(8))
        dodona.sgl_per_token_quant_fp8(f32(4, 8))
    with pytest.raises(kind, match=words):
        call()


def test_leave_to_copy_from_devices_does_not_help_without_values():
    with dodona.device_copies(), pytest.raises(ValueError, match="input is on the meta device"):
        dodona.rmsnorm(f32(2, 8).to("meta"), f32(8))


@pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor")
def test_tensors_that_compilers_trace_with_are_refused():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        x, weight = torch.empty(2, 8), torch.empty(8)
    with pytest.raises(ValueError, match="rmsnorm: input"):
        dodona.rmsnorm(x, weight)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")
def test_tensors_on_a_real_gpu_are_copied_there_and_back(norm):
    x, residual, weight = (tensor.cuda() for tensor in (norm[0], norm[0] * 2, norm[1]))
    with pytest.raises(TypeError, match="fused_add_rmsnorm: input is on cuda"):
        dodona.fused_add_rmsnorm(x, residual, weight)
    with dodona.device_copies():
        dodona.fused_add_rmsnorm(x, residual, weight)
        y = dodona.rmsnorm(residual, weight)
    on_cpu, sum_on_cpu = norm[0].clone(), norm[0] * 2
    dodona.fused_add_rmsnorm(on_cpu, sum_on_cpu, norm[1])
    assert x.is_cuda and torch.equal(x.cpu(), on_cpu) and torch.equal(residual.cpu(), sum_on_cpu)
    assert y.is_cuda and torch.equal(y.cpu(), dodona.rmsnorm(sum_on_cpu, norm[1]))


# ---- exported FlashInfer-Bench definitions ----


def as_torch(arrays, d):
    for value, field in zip(arrays, d["inputs"].values()):
        kind = test_fib.kind_of(torch, field)
        if not isinstance(value, np.ndarray):
            yield value
        elif value.dtype.kind in "iufb" and value.dtype != np.uint16 and not field["dtype"].startswith(("bfloat", "float8", "float4")):
            yield torch.from_numpy(value)
        else:
            yield torch.from_numpy(value.view({1: np.uint8, 2: np.int16}[value.dtype.itemsize])).view(kind)


@pytest.mark.parametrize("op", dodona.ops())
def test_every_reference_takes_torch_tensors(op, exported, stored):
    """What flashinfer-bench hands it."""
    root, found = test_fib.of_op(exported, op)
    ran = 0
    for d, workload in found:
        fields = [*d["inputs"].values(), *d["outputs"].values()]
        if not all(test_fib.kind_of(torch, field) for field in fields):
            continue  # an older torch
        tensors = {key: value for path in (root / "blob").rglob(f"{d['name']}_1.safetensors") for key, value in stored(path).items()}
        results = test_fib.reference_of(d)(*as_torch(test_fib.as_numpy(d, workload, tensors), d))
        assert all(isinstance(one, (torch.Tensor, int)) for one in (results if isinstance(results, tuple) else (results,)))
        test_fib.judge(op, d, workload, results)
        ran += 1
    assert ran or not hasattr(torch, "float4_e2m1fn_x2"), "a torch that has every type"
