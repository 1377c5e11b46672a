"""Every op as a function: bytes, signatures, memory, and what bad input gets."""

import ctypes
import inspect
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

import dodona
from dodona import _library

try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None


def lines():
    return [f"{op} {dodona.schema(op)['cases'][0]}" for op in dodona.ops()]


def outputs_of(case, arguments, returned):
    """What a call gave by the schema's names: what it wrote in place, then what it returned."""
    specs = dodona.schema(case.op)["tensors"]
    made = {spec["name"]: arguments[spec["name"]] for spec in specs if spec["direction"] == "in place" and spec["name"] in arguments}
    names = [spec["name"] for spec in specs if spec["direction"] == "out"]
    values = returned if isinstance(returned, tuple) else () if returned is None else (returned,)
    present = [name for name in names if name not in made]
    if len(values) < len(present):  # some outputs are made on demand
        present = [name for name in present if name in case.run()]
    return {**made, **dict(zip(present, values))}


@pytest.mark.parametrize("line", lines())
def test_every_op_gives_the_bytes_of_the_command(line, command, stored, tmp_path):
    case = dodona.gen(line)
    arguments = case.arguments()
    returned = getattr(dodona, case.op)(**arguments)
    command("run", *line.split(), "-o", str(tmp_path / "outputs.safetensors"))
    wanted = stored(tmp_path / "outputs.safetensors")
    got = outputs_of(case, arguments, returned)
    assert set(got) == set(wanted)
    for name, value in got.items():
        assert np.ascontiguousarray(np.asarray(value)).tobytes() == wanted[name], name


@pytest.mark.parametrize("op", dodona.ops())
def test_the_arguments_of_every_case_line_make_its_call(op):
    for line in dodona.schema(op)["cases"]:
        case = dodona.gen(f"{op} {line}")
        arguments = case.arguments()
        got = outputs_of(case, arguments, getattr(dodona, op)(**arguments))
        wanted = case.run()
        assert set(got) == set(wanted), line
        for name, value in got.items():
            value = value.array if isinstance(value, dodona.Typed) else np.asarray(value)
            assert np.ascontiguousarray(value).tobytes() == wanted[name].tobytes(), (line, name)


@pytest.mark.parametrize("line", lines())
def test_every_op_passes_its_own_check(line):
    case = dodona.gen(line)
    outputs = case.run()
    assert dodona.check(case, outputs).outcome in ("pass", "vacuous")


def test_functions_have_upstreams_signature_and_a_docstring():
    assert list(inspect.signature(dodona.rmsnorm).parameters)[:5] == ["input", "weight", "eps", "out", "enable_pdl"]
    assert inspect.signature(dodona.rmsnorm).parameters["eps"].default == 1e-6
    rope = list(inspect.signature(dodona.apply_rope_with_cos_sin_cache_inplace).parameters)
    assert rope[:6] == ["positions", "query", "key", "head_size", "cos_sin_cache", "is_neox"]
    for op in dodona.ops():
        function = getattr(dodona, op)
        assert function.__name__ == op and len(function.__doc__) > 100, op
        for spec in dodona.schema(op)["tensors"]:
            assert spec["name"] in function.__doc__, (op, spec["name"])


def test_what_bytes_hold_is_part_of_the_schema():
    tensors = {spec["name"]: spec for spec in dodona.schema("cutlass_scaled_fp4_mm")["tensors"]}
    assert tensors["a"]["storage"]["codes"] == "f4_e2m1"
    scales = {"of": "a", "rows": 1, "columns": 16, "order": "swizzled-128x4", "by_expert": False}
    assert tensors["block_scale_a"]["storage"]["scales"] == scales
    assert tensors["block_scale_a"]["storage"]["text"] in dodona.cutlass_scaled_fp4_mm.__doc__
    assert "storage" not in tensors["out"]


def test_modes_and_threads_are_chosen_by_call(rms):
    fast = dodona.rmsnorm(**rms)
    assert np.array_equal(fast, dodona.rmsnorm(**rms, threads=1))
    assert np.allclose(fast, dodona.rmsnorm(**rms, mode="golden"), rtol=1e-5)
    with pytest.raises(ValueError, match="mode must be one of fast, golden, hopper, blackwell, ada, ampere"):
        dodona.rmsnorm(**rms, mode="slow")
    with pytest.raises(ValueError, match="threads"):
        dodona.rmsnorm(**rms, threads=-1)


def test_a_gpu_is_another_name_of_its_mode():
    case = dodona.gen("bmm_fp8 L=1 M=2 N=16 K=64")
    bits = {gpu: case.run(gpu=gpu)["out"].tobytes() for gpu in ("h100", "h200", "b200", "l40s")}
    assert bits["h100"] == bits["h200"] == case.run("hopper")["out"].tobytes()
    assert bits["b200"] == case.run("blackwell")["out"].tobytes() != bits["h100"]
    called = dodona.bmm_fp8(**case.arguments(), gpu="l40s")
    assert called.tobytes() == bits["l40s"] == case.run("ada")["out"].tobytes()
    assert case.check(case.run(gpu="b200"), gpu="b200")
    assert not case.check(case.run(gpu="l40s"), gpu="b200")
    assert "model of published measurements" in case.check(case.run(gpu="b200"), gpu="b200").text
    assert "blackwell mode is a model" in dodona.bmm_fp8.__doc__
    with pytest.raises(ValueError, match="gpu must be one of h100, h200, b200, l40s, a100, got 'v100'"):
        case.run(gpu="v100")
    with pytest.raises(ValueError, match="gpu 'b200' is blackwell mode, but mode asks for golden"):
        case.run("golden", gpu="b200")
    with pytest.raises(ValueError, match="bmm_fp8: has no ampere mode, expected fast, golden, hopper, blackwell or ada"):
        dodona.bmm_fp8(**case.arguments(), gpu="a100")


def test_out_is_written_and_returned(rms):
    out = np.empty_like(rms["input"])
    assert dodona.rmsnorm(rms["input"], rms["weight"], out=out) is out
    assert np.array_equal(out, dodona.rmsnorm(**rms))


def test_in_place_ops_write_in_place_and_return_nothing(rms):
    x, residual = rms["input"].copy(), rms["input"] * 2
    address = x.__array_interface__["data"]
    assert dodona.fused_add_rmsnorm(x, residual, rms["weight"]) is None
    assert x.__array_interface__["data"] == address
    assert np.array_equal(residual, rms["input"] * 3)
    assert np.allclose(x, dodona.rmsnorm(rms["input"] * 3, rms["weight"]), rtol=1e-5)


def test_nothing_is_copied():
    x = np.arange(64, dtype=np.float32).reshape(4, 16)
    for view in (x, x[:, :8], x[1:3]):
        seen = dodona.weak_ref_tensor(view)
        assert seen.__array_interface__["data"][0] == view.__array_interface__["data"][0]
        assert seen.strides == view.strides


def test_memory_that_the_library_made_outlives_the_call():
    arrays = [dodona.gen(f"moe_fused_gate T=2 E=256 --attr num_expert_group=8 --attr topk_group=4 --attr topk=8 --seed {i}").run() for i in range(50)]
    assert len({array["topk_ids"].tobytes() for array in arrays}) > 40


def test_rows_of_a_wider_array_are_taken_as_they_lie(rms):
    wide = np.full((3, 24), np.nan, np.float32)
    wide[:, :16] = rms["input"]
    assert np.array_equal(dodona.rmsnorm(wide[:, :16], rms["weight"]), dodona.rmsnorm(**rms))


# ---- element types ----


def bf16(values):
    """fp32 to raw bf16 codes, by truncation."""
    return (np.asarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint16)


def test_raw_codes_stand_for_bf16(rms):
    y = dodona.rmsnorm(bf16(rms["input"]), bf16(rms["weight"]))
    codes = y.view(np.uint16).astype(np.uint32) << 16
    assert np.allclose(codes.view(np.float32), dodona.rmsnorm(**rms), rtol=0.03, atol=0.03)


if ml_dtypes is not None:

    def test_ml_dtypes_are_taken_and_given(rms):
        y = dodona.rmsnorm(rms["input"].astype(ml_dtypes.bfloat16), rms["weight"].astype(ml_dtypes.bfloat16))
        assert y.dtype == ml_dtypes.bfloat16
        q, scale = dodona.sgl_per_token_quant_fp8(rms["input"])
        assert q.dtype == ml_dtypes.float8_e4m3fn and scale.dtype == np.float32

else:

    def test_without_ml_dtypes_results_are_raw_codes(rms):
        assert dodona.rmsnorm(bf16(rms["input"]), bf16(rms["weight"])).dtype == np.uint16
        assert dodona.sgl_per_token_quant_fp8(rms["input"])[0].dtype == np.uint8


def test_as_dtype_says_what_raw_codes_are():
    case = dodona.gen("bmm_fp8 L=1 M=16 N=16 K=16 --dtype B=f8_e5m2")
    raw = {name: array.view(np.uint8) if array.dtype.itemsize == 1 else array for name, array in case.inputs.items()}
    wanted = case.run()["out"]
    got = dodona.bmm_fp8(raw["A"], dodona.as_dtype(raw["B"], "f8_e5m2"), raw["A_scale"], raw["B_scale"], "bf16")
    assert got.tobytes() == wanted.tobytes()
    with pytest.raises(TypeError, match="bmm_fp8: A has dtype uint16, which cannot be codes of f8_e4m3"):
        dodona.bmm_fp8(dodona.as_dtype(np.zeros((1, 16, 16), np.uint16), "f8_e4m3"), raw["B"], raw["A_scale"], raw["B_scale"], "bf16")


@pytest.mark.parametrize("dtype", ["bf16", "bfloat16", "torch.bfloat16", np.float16])
def test_dtype_attributes_take_everybodys_names(dtype):
    case = dodona.gen("bmm_fp8 L=1 M=16 N=16 K=16")
    arguments = {**case.arguments(), "dtype": dtype}
    assert dodona.bmm_fp8(**arguments).itemsize == 2


# ---- others' tensors ----


class Exported:
    """An array that has nothing but DLPack."""

    def __init__(self, array, device=(1, 0)):
        self.array, self.device = array, device

    def __dlpack__(self, **kwargs):
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return self.device


def test_dlpack_is_taken_without_a_copy(rms):
    wanted = dodona.rmsnorm(**rms)
    assert np.array_equal(dodona.rmsnorm(Exported(rms["input"]), Exported(rms["weight"])), wanted)
    out = np.zeros_like(wanted)
    dodona.rmsnorm(Exported(rms["input"]), rms["weight"], out=Exported(out))
    assert np.array_equal(out, wanted), "the exported memory itself was written"


def test_dlpack_of_another_device_is_refused_by_name(rms):
    with pytest.raises(TypeError, match=r"rmsnorm: input is on device \(2, 0\)"):
        dodona.rmsnorm(Exported(rms["input"], (2, 0)), rms["weight"])


class FakeTorch:
    """What this package asks of a torch tensor, over an array."""

    layout = "torch.strided"

    class device:
        type = "cpu"

    def __init__(self, array, dtype, device="cpu"):
        self.array, self.dtype, self.shape = array, f"torch.{dtype}", array.shape
        self.device = type("device", (), {"type": device, "__str__": lambda self: device})()

    def data_ptr(self):
        return self.array.ctypes.data

    def stride(self):
        return tuple(step // self.array.itemsize for step in self.array.strides)

    def detach(self):
        return self

    def cpu(self):
        return FakeTorch(self.array.copy(), self.dtype.removeprefix("torch."))

    def copy_(self, other):
        self.array[...] = other.array


def test_torch_tensors_are_read_where_they_lie(rms):
    out = np.zeros((3, 16), np.uint16)
    x, w = FakeTorch(bf16(rms["input"]), "bfloat16"), FakeTorch(bf16(rms["weight"]), "bfloat16")
    dodona.rmsnorm(x, w, out=FakeTorch(out, "bfloat16"))
    assert out.tobytes() == dodona.rmsnorm(x.array, w.array).tobytes()


def test_tensors_on_a_gpu_need_leave_to_be_copied(rms):
    x, residual = rms["input"].copy(), rms["input"] * 2
    on_gpu = [FakeTorch(array, "float32", "cuda") for array in (x, residual, rms["weight"])]
    with pytest.raises(TypeError, match="fused_add_rmsnorm: input is on cuda, expected the cpu; within dodona.device_copies"):
        dodona.fused_add_rmsnorm(*on_gpu)
    with dodona.device_copies():
        dodona.fused_add_rmsnorm(*on_gpu)
    assert np.array_equal(residual, rms["input"] * 3), "what was written in place came back"


# ---- bad input ----


def f32(*shape):
    return np.ones(shape, np.float32)


BAD_CALLS = {
    "dtype": (lambda: dodona.rmsnorm(f32(2, 8).astype(np.int32), f32(8)), TypeError, "rmsnorm: input has dtype i32, expected one of"),
    "alien dtype": (lambda: dodona.rmsnorm(f32(2, 8).astype(complex), f32(8)), TypeError, "rmsnorm: input has dtype complex128"),
    "objects": (lambda: dodona.rmsnorm(np.array([[None]]), f32(1)), TypeError, "rmsnorm: input has dtype object"),
    "byte order": (lambda: dodona.rmsnorm(f32(2, 8).astype(">f4"), f32(8)), TypeError, "rmsnorm: input has dtype >f4"),
    "mixed dtypes": (lambda: dodona.rmsnorm(f32(2, 8), f32(8).astype(np.float16)), TypeError, "rmsnorm: weight has dtype f16"),
    "list": (lambda: dodona.rmsnorm([[1.0]], f32(1)), TypeError, "rmsnorm: input is list, expected an array"),
    "number": (lambda: dodona.rmsnorm(1.0, f32(1)), TypeError, "rmsnorm: input is float"),
    "shape": (lambda: dodona.rmsnorm(f32(2, 8), f32(7)), ValueError, r"rmsnorm: weight has shape \[7\], expected \[H\]"),
    "rank": (lambda: dodona.rmsnorm(f32(1, 1, 1, 1, 1, 1, 8), f32(8)), ValueError, "rmsnorm: input has rank 7"),
    "0-d": (lambda: dodona.rmsnorm(np.array(1, np.float32), f32(1)), ValueError, "rmsnorm: input has rank 0"),
    "stride": (lambda: dodona.rmsnorm(f32(8, 2).T, f32(8)), ValueError, "rmsnorm: input has strides"),
    "negative stride": (lambda: dodona.rmsnorm(f32(2, 8)[::-1], f32(8)), ValueError, "negative strides"),
    "not contiguous": (
        lambda: dodona.sgl_per_token_quant_fp8(f32(4, 16)[:, :8]), ValueError, "sgl_per_token_quant_fp8: input has strides .* contiguous"
    ),
    "misaligned": (
        lambda: dodona.rmsnorm(np.zeros(65, np.uint8)[1:].view(np.float32).reshape(2, 8), f32(8)), ValueError, "rmsnorm: input begins"
    ),
    "fields between elements": (
        lambda: dodona.rmsnorm(np.zeros((2, 8), "f4,u1")["f0"], f32(8)), ValueError, "rmsnorm: input has a stride of .* bytes"
    ),
    "huge": (lambda: dodona.rmsnorm(np.broadcast_to(np.float32(1), (2**40, 2**20)), f32(2**20)), ValueError, "rmsnorm: (input|output)"),
    "read-only": (lambda: dodona.rmsnorm(f32(2, 8), f32(8), out=read_only(2, 8)), ValueError, "rmsnorm: output is read-only"),
    "read-only in place": (
        lambda: dodona.fused_add_rmsnorm(read_only(2, 8), f32(2, 8), f32(8)), ValueError, "fused_add_rmsnorm: input is read-only"
    ),
    "shared memory": (lambda: shared(), ValueError, "rmsnorm: output shares memory with input"),
    "attribute": (lambda: dodona.rmsnorm(f32(2, 8), f32(8), eps="big"), ValueError, "rmsnorm: eps must be a number"),
    "attribute's type": (lambda: dodona.rmsnorm(f32(2, 8), f32(8), eps=[1]), TypeError, r"rmsnorm: eps is \[1\]"),
    "attribute's range": (lambda: dodona.rmsnorm(f32(2, 8), f32(8), eps=-1.0), ValueError, "rmsnorm: eps must be at least 0"),
    "recipe": (lambda: dodona.rmsnorm(f32(2, 8), f32(8), weight_order="third"), ValueError, "weight_order must be one of"),
    "unknown argument": (lambda: dodona.rmsnorm(f32(2, 8), f32(8), epsilon=1), TypeError, "epsilon"),
    "missing argument": (lambda: dodona.rmsnorm(f32(2, 8)), TypeError, "weight"),
    "None for a tensor": (lambda: dodona.rmsnorm(None, f32(8)), TypeError, "rmsnorm: input is missing"),
    "contents": (
        lambda: dodona.shuffle_rows(f32(4, 8), np.array([9], np.int32)), ValueError, "shuffle_rows: dst2src_map holds 9 at element 0"
    ),
}  # fmt: skip


def read_only(*shape):
    array = f32(*shape)
    array.flags.writeable = False
    return array


def shared():
    x = f32(4, 8)
    return dodona.rmsnorm(x[:2], x[3], out=x[1:3])


@pytest.mark.parametrize("name", BAD_CALLS)
def test_bad_calls_name_op_and_argument(name):
    call, kind, words = BAD_CALLS[name]
    with pytest.raises(kind, match=words):
        call()


def test_nothing_is_written_by_a_bad_call():
    out = np.full((2, 8), -7, np.float32)
    with pytest.raises(ValueError):
        dodona.rmsnorm(f32(2, 8), f32(7), out=out)
    assert (out == -7).all()


def test_errors_have_fields():
    with pytest.raises(dodona.Error) as caught:
        dodona.rmsnorm(f32(2, 8), f32(7))
    assert (caught.value.code, caught.value.op, caught.value.argument) == ("bad_shape", "rmsnorm", "weight")
    with pytest.raises(AttributeError, match="no attribute 'rmsnrom'"):
        dodona.rmsnrom


def test_empty_arrays_are_welcome():
    assert dodona.rmsnorm(f32(0, 8), f32(8)).shape == (0, 8)


def test_a_tensor_may_be_freed_or_replaced_while_others_run():
    results = []

    def work():
        for i in range(50):
            x = np.full((4, 64), i + 1, np.float32)
            results.append(float(dodona.rmsnorm(x, np.ones(64, np.float32), threads=1)[0, 0]))
            del x

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 200 and np.allclose(results, 1)


def test_calls_release_the_interpreters_lock():
    assert isinstance(_library.lib, ctypes.CDLL) and not isinstance(_library.lib, ctypes.PyDLL)


def test_memory_that_a_thread_cannot_have_is_an_error_not_the_end():
    """In a process of its own, which may have little more than it has: golden mode widens rows inside a parallel region."""
    program = textwrap.dedent(
        """
        import resource
        import numpy as np
        import dodona

        x = np.ones((4, 1 << 24), np.float16)
        y = np.empty((4, 1 << 23), np.float16)
        dodona.silu_and_mul(x[:, :16384], mode="golden", threads=4)  # the threads are there before memory is scarce
        size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + (48 << 20), resource.RLIM_INFINITY))
        try:
            dodona.silu_and_mul(x, y, mode="golden", threads=4)
        except dodona.OutOfMemory as error:
            print("caught:", error)
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        assert dodona.silu_and_mul(x[:, :64], threads=4).shape == (4, 32)
        """
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("caught: silu_and_mul: "), done.stdout
