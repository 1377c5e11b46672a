"""dodona.ptx: kernels as PTX text on NumPy arrays, recordings of kernels that an H100 ran, and planted defects that must be found and named."""

import ctypes
import json
import pathlib
import re

import numpy as np
import pytest

import dodona
from dodona import ptx

FILES = pathlib.Path(__file__).parents[2] / "tests" / "ptx"

HEAD = ".version 8.0\n.target sm_90a\n.address_size 64\n"

# y[i] = a * x[i] + y[i]
AXPY = HEAD + """
.visible .entry axpy(.param .u64 p_x, .param .u64 p_y, .param .f32 p_a, .param .u32 p_n)
{
  .reg .pred %p<2>;
  .reg .b32 %r<6>;
  .reg .f32 %f<5>;
  .reg .b64 %rd<6>;
  ld.param.u64 %rd1, [p_x];
  ld.param.u64 %rd2, [p_y];
  ld.param.f32 %f1, [p_a];
  ld.param.u32 %r1, [p_n];
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.s32 %r5, %r2, %r3, %r4;
  setp.ge.s32 %p1, %r5, %r1;
  @%p1 bra done;
  mul.wide.s32 %rd3, %r5, 4;
  add.s64 %rd4, %rd1, %rd3;
  add.s64 %rd5, %rd2, %rd3;
  ld.global.f32 %f2, [%rd4];
  ld.global.f32 %f3, [%rd5];
  fma.rn.f32 %f4, %f1, %f2, %f3;
  st.global.f32 [%rd5], %f4;
done:
  ret;
}
"""

# out[i] = *(table[i])
GATHER = HEAD + """
.visible .entry gather(.param .u64 p_table, .param .u64 p_out)
{
  .reg .b32 %r<3>;
  .reg .b64 %rd<8>;
  ld.param.u64 %rd1, [p_table];
  ld.param.u64 %rd2, [p_out];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd3, %r1, 8;
  add.s64 %rd4, %rd1, %rd3;
  ld.global.u64 %rd5, [%rd4];
  ld.global.u32 %r2, [%rd5];
  mul.wide.u32 %rd6, %r1, 4;
  add.s64 %rd7, %rd2, %rd6;
  st.global.u32 [%rd7], %r2;
  ret;
}
"""


@pytest.fixture(scope="module")
def axpy():
    return ptx.Module(AXPY)


def test_a_module_says_what_it_holds(axpy):
    kernel = axpy.kernels["axpy"]
    assert axpy.target == "sm_90a" and [p.type for p in kernel.parameters] == ["u64", "u64", "f32", "u32"] and not kernel.missing
    assert kernel.block is None and kernel.instructions["fma.rn.f32"] == 1


def test_a_launch_writes_arrays_in_place(axpy, rng=np.random.default_rng(1)):
    x, y = rng.standard_normal(100, np.float32), rng.standard_normal(100, np.float32)
    exact = np.float64(np.float32(0.3)) * x + y
    report = axpy.launch("axpy", 2, 64, x, y, 0.3, 100)
    assert np.array_equal(y, exact.astype(np.float32))  # one rounding: the double holds product and sum of these
    assert (report.blocks, report.threads_per_block, report.findings) == (2, 64, ())


def test_a_file_is_read_as_text_is(tmp_path, axpy):
    path = tmp_path / "axpy.ptx"
    path.write_text(AXPY)
    assert ptx.Module(path).kernels == axpy.kernels == ptx.Module(str(path)).kernels


def test_views_are_taken_as_they_lie(axpy):
    whole = np.arange(64, dtype=np.float32).reshape(8, 8)
    before = whole.copy()
    axpy.launch(None, 1, 32, whole[2], whole[5], np.float32(2), np.int32(8))
    before[5] += 2 * before[2]
    assert np.array_equal(whole, before)


def test_the_same_bits_with_any_number_of_threads(axpy):
    x, results = np.linspace(-1, 1, 4096, dtype=np.float32), []
    for threads in (1, 2, 5):
        y = np.ones_like(x)
        axpy.launch("axpy", 32, 128, x, y, 0.1, 4096, threads=threads)
        results.append(y.tobytes())
    assert len(set(results)) == 1


def test_a_table_of_pointers_points_into_arrays():
    values = [np.full(3, number, np.uint32) for number in (7, 8, 9)]
    out = np.zeros(3, np.uint32)
    ptx.Module(GATHER).launch("gather", 1, 3, ptx.Pointers([values[0], values[2][1:], values[1]]), out)
    assert list(out) == [7, 9, 8]


def test_what_a_kernel_must_not_do_raises_and_names_the_argument(axpy):
    x, y = np.zeros(40, np.float32), np.zeros(64, np.float32)
    with pytest.raises(ptx.KernelError, match=r"p_x\+0xa0") as raised:
        axpy.launch("axpy", 1, 64, x, y, 1.0, 64)
    finding = raised.value.report.findings[0]
    assert (finding.kind, finding.space, finding.thread) == ("out_of_bounds", "global", (40, 0, 0))
    kept = axpy.launch("axpy", 1, 64, x, y, 1.0, 64, findings="keep", names=["x", "y"])
    assert kept.findings and kept.findings[0].address.startswith("x+0xa0")


def test_read_only_and_unwritten_memory(axpy):
    x, y = np.zeros(8, np.float32), np.zeros(8, np.float32)
    y.setflags(write=False)
    with pytest.raises(ptx.KernelError, match="read"):
        axpy.launch("axpy", 1, 32, x, y, 1.0, 8)
    with pytest.raises(ptx.KernelError) as raised:
        axpy.launch("axpy", 1, 32, x, ptx.Unwritten(np.empty(8, np.float32)), 1.0, 8, uninit="on")
    assert raised.value.report.findings[0].kind == "uninitialised"


@pytest.mark.parametrize("arguments, message", [
    ((np.zeros(4, np.float32),), "takes 4 arguments, got 1"),
    ((np.zeros(4, np.float32), np.zeros(4, np.float32), 1.0, 4, 5), "takes 4 arguments, got 5"),
    ((np.zeros(4, np.float32), np.zeros(4, np.float32), np.float64(1), 4), "p_a has 8 bytes, expected 4"),
    ((np.zeros(4, np.float32), np.zeros(4, np.float32), 1.0, 2.5), "p_n is a float, expected a number of type u32"),
    ((np.zeros(4, np.float32), np.zeros(4, np.float32), 1.0, 1 << 40), "p_n is 1099511627776, which 32 bits do not hold"),
    ((np.zeros(4, np.float32), np.zeros(4, np.float32), 1.0, None), "p_n is None"),
    ((np.zeros(4, np.float32), np.zeros(4, np.float32), 1.0, np.zeros(4)), "p_n is an array"),
    ((np.zeros(4, np.float32), "text", 1.0, 4), "p_y is str"),
])  # fmt: skip
def test_arguments_that_do_not_fit_are_refused(axpy, arguments, message):
    with pytest.raises(dodona.Error, match=re.escape(message)):
        axpy.launch("axpy", 1, 32, *arguments)


@pytest.mark.parametrize("launch, message", [
    (dict(kernel="axpi"), "kernel must be one of axpy, got 'axpi'"),
    (dict(grid=()), "grid"),
    (dict(grid=(1, 1, 1, 1)), "grid"),
    (dict(grid=-1), "grid"),
    (dict(block=None), ""),
    (dict(block=4096), ""),
    (dict(race="perhaps"), "race"),
])  # fmt: skip
def test_launches_that_cannot_be_are_refused(axpy, launch, message):
    given = dict(kernel="axpy", grid=1, block=32) | launch
    x = np.zeros(4, np.float32)
    with pytest.raises(dodona.Error, match=message):
        axpy.launch(given.pop("kernel"), given.pop("grid"), given.pop("block"), x, x.copy(), 1.0, 4, **given)


@pytest.mark.parametrize("text", ["not PTX\n", HEAD + ".visible .entry k() { nonsense", AXPY.replace("fma.rn.f32", "fma.rn.f32 ,"), ""])
def test_broken_text_is_one_clear_error(text):
    with pytest.raises(dodona.Error) as raised:
        ptx.Module(text + "\n")
    assert "ptx" in str(raised.value)


def test_a_missing_file_is_one_clear_error(tmp_path):
    with pytest.raises(dodona.BadValue, match="cannot be read"):
        ptx.Module(tmp_path / "none.ptx")


def test_a_trace_writes_the_order_of_arithmetic(axpy):
    x, y = np.arange(8, dtype=np.float32), np.ones(8, np.float32)
    trace = axpy.trace("axpy", 1, 32, x, y, 2.0, 8, argument=1, element=3)
    assert "fma" in str(trace)


def test_struct_of_an_argument_is_that_of_the_header():
    assert ctypes.sizeof(ptx._Argument) == 32


# ---- planted defects: the kind of finding, the arguments of both kernels of the file, threads of its block

F32, I32 = np.float32, np.int32


def floats(n):
    return np.arange(n, dtype=F32)


def read_only(array):
    array.setflags(write=False)
    return array


def bf16_ones():
    return np.full(512, 0x3F803F80, np.uint32)


DEFECTS = {
    "race_missing_barrier": ("race", lambda: [floats(64)], 64),
    "race_tile_reused": ("race", lambda: [floats(192), floats(64)], 64),
    "race_two_writers": ("race", lambda: [floats(1)], 64),
    "race_global": ("race", lambda: [np.zeros(64, I32)], 64),
    "race_plain_and_atomic": ("race", lambda: [np.zeros(1, I32)], 64),
    "race_unwaited_copy": ("race", lambda: [floats(256), floats(256)], 64),
    "bounds_tail": ("out_of_bounds", lambda: [floats(100), floats(100), 100], 64),
    "bounds_one_more": ("out_of_bounds", lambda: [floats(100), 100], 64),
    "bounds_before": ("out_of_bounds", lambda: [floats(64), floats(64)], 64),
    "bounds_shared": ("out_of_bounds", lambda: [floats(64)], 64),
    "null_pointer": ("out_of_bounds", lambda: [floats(64), None, floats(64)], 64),
    "uninitialised_shared": ("uninitialised", lambda: [floats(64), floats(64), 50], 64),
    "uninitialised_output": ("uninitialised", lambda: [floats(64), ptx.Unwritten(floats(64))], 64),
    "misaligned_vector": ("misaligned", lambda: [floats(512), floats(64)], 64),
    "misaligned_matrix_rows": ("misaligned", lambda: [np.zeros(64, np.uint32), np.zeros(32, np.uint32)], 32),
    "diverged_barrier": ("diverged", lambda: [floats(64)], 64),
    "diverged_named_barrier": ("diverged", lambda: [floats(64)], 64),
    "diverged_shuffle": ("diverged", lambda: [floats(32), floats(32)], 32),
    "read_only_input": ("read_only", lambda: [read_only(floats(64)), floats(64)], 64),
    "endless_wait": ("endless", lambda: [np.zeros(1, I32), np.zeros(64, I32)], 32),
    "wgmma_no_fence": ("wgmma_fence", lambda: [bf16_ones(), floats(512)], 128),
    "wgmma_no_wait": ("wgmma_fence", lambda: [bf16_ones(), floats(512)], 128),
    "wgmma_no_proxy_fence": ("proxy_fence", lambda: [bf16_ones(), floats(512)], 128),
}


def marked_line(name):
    """The line of the source on which the defect is."""
    lines = (FILES / "defects" / f"{name}.cu").read_text().split("\n")
    return next(number for number, line in enumerate(lines, 1) if "// here" in line)


def told(name, mended, arguments, threads):
    """Findings as (kind, source); what stops a launch counts as one."""
    module = ptx.Module(FILES / "defects" / f"{name}.ptx")
    kernel = next(kernel for kernel in module.kernels if f"ILb{int(mended)}E" in kernel)
    try:
        report = module.launch(kernel, 2 if name == "bounds_tail" else 1, threads, *arguments, findings="keep", race="on", uninit="on", limit=100_000)
    except dodona.Error as error:
        return [("endless" if "endless" in str(error) else "diverged" if "barrier" in str(error) else error.code, str(error))]
    return [(finding.kind, finding.source) for finding in report.findings]


def test_every_planted_defect_has_its_row():
    assert sorted(path.stem for path in (FILES / "defects").glob("*.ptx")) == sorted(DEFECTS)


# What is not seen yet. The test says so as soon as one of them is.
@pytest.mark.parametrize("name", DEFECTS)
def test_a_planted_defect_is_found_and_its_line_named(name):
    kind, arguments, threads = DEFECTS[name]
    found = told(name, False, arguments(), threads)
    assert kind in [one for one, _ in found], found
    assert any(one == kind and re.search(rf"{name}\.cu:{marked_line(name)}\b", source) for one, source in found), found


@pytest.mark.parametrize("name", DEFECTS)
def test_the_mended_kernel_has_no_finding(name):
    _, arguments, threads = DEFECTS[name]
    given = arguments()
    if name == "read_only_input":
        given[0] = floats(64)
    assert told(name, True, given, threads) == []


# ---- recordings: our own kernels, compiled by nvcc and Triton, and what an H100 wrote

RECORDED = sorted(path.stem for path in (FILES / "recorded").glob("*.json"))


def test_machine_code_says_how_open_sums_were_read():
    text = FILES / "machine_code" / "open.cuobjdump"
    module = ptx.Module(FILES / "machine_code" / "open.ptx")
    found = {name: module.readings(name, text, ptxas="", disassembler="") for name in module.kernels}
    assert all(each.settled for each in found.values())
    assert [sum_.fused for sum_ in found["contracted"].open] == [True, True] and [sum_.fused for sum_ in found["apart"].open] == [False]
    assert found["contracted"].counts == {"fma.f32": 1, "fma.bf16x2": 1} and found["closed"].open == ()
    assert "line 10: mul.f32 (line 9) then add.f32, into %f6: one rounding" in str(found["contracted"])

    x = np.array([1 + 2**-12, 1 + 2**-12, -1.0, 0.0], np.float32)
    for reading, expected in ((found["contracted"], 2**-11 + 2**-24), ("auto", 2**-11 + 2**-24), (True, 2**-11 + 2**-24), ("off", 2**-11)):
        here = x.copy()
        report = module.launch("contracted", 1, 1, here, contract=reading)
        assert here[0] == expected and report.open[0].endswith("two roundings" if reading == "off" else "one rounding")
    with pytest.raises(dodona.Error, match="must be auto, ptxas, on, off or Readings"):
        module.launch("contracted", 1, 1, x, contract="maybe")
    with pytest.raises(dodona.Error, match="cannot be read"):
        module.readings("apart", "no such file")


SUM_INTO_MAP = """
.version 8.7
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 x, .param .align 64 .b8 map[128])
{{
.reg .b64 %d<4>; .reg .b32 %r<8>; .reg .pred %p<2>; .shared .align 128 .b8 room[256];
ld.param.u64 %d1, [x]; mov.u32 %r1, %tid.x; mad.wide.u32 %d1, %r1, 4, %d1; ld.global.b32 %r2, [%d1];
mov.u32 %r3, room; shl.b32 %r4, %r1, 2; add.u32 %r4, %r3, %r4; st.shared.b32 [%r4], %r2; fence.proxy.async.shared::cta; bar.sync 0;
mov.b64 %d2, map; cvta.param.u64 %d2, %d2; mov.u32 %r5, {column}; mov.u32 %r6, 1; setp.eq.u32 %p1, %r1, 0;
@%p1 cp.reduce.async.bulk.tensor.2d.global.shared::cta.{operation}.tile.bulk_group [%d2, {{%r5, %r6}}], [%r3];
@%p1 cp.async.bulk.commit_group; @%p1 cp.async.bulk.wait_group 0;
ret;
}}
"""


@pytest.mark.parametrize("operation, combine", [("add", np.add), ("min", np.minimum), ("max", np.maximum), ("and", np.bitwise_and), ("xor", np.bitwise_xor)])
@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.float16])
def test_bulk_sums_go_into_tensor_maps_by_their_type(operation, combine, dtype):
    random = np.random.default_rng(5)
    whole = np.dtype(dtype).kind != "f"
    draw = (lambda *shape: random.integers(0, 2**32, shape, np.uint32).view(dtype)) if whole else (lambda *shape: random.standard_normal(shape).astype(dtype))
    columns = 16 if whole else 32
    box, there = draw(4, columns), draw(8, columns + 8)
    expected, column = there.copy(), 20 if whole else 8  # a box of whole numbers ends beyond the map: what is outside is left out
    module = ptx.Module(SUM_INTO_MAP.format(operation=operation, column=column))
    if not whole and operation in ("and", "xor"):
        with pytest.raises(dodona.Error, match=f"a tensor map of f16 takes no {operation}"):
            module.launch("k", 1, 64, box, ptx.TensorMap(there, [4, columns]))
        return
    kept = min(columns, there.shape[1] - column)
    expected[1:5, column : column + kept] = combine(expected[1:5, column : column + kept], box[:, :kept])
    assert module.launch("k", 1, 64, box, ptx.TensorMap(there, [4, columns])).findings == ()
    assert there.tobytes() == expected.tobytes()


def test_there_are_recordings():
    assert RECORDED


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_kernel_gives_the_bits_of_the_gpu(name):
    said = json.loads((FILES / "recorded" / f"{name}.json").read_text())
    with np.load(FILES / "recorded" / f"{name}.npz") as stored:
        arrays = {key: stored[key] for key in stored.files}
    given, memory = [], {}
    for number, argument in enumerate(said["arguments"]):
        if argument["kind"] == "array":
            memory[number] = arrays[f"in{number}"].copy()
            given.append(memory[number])
        elif argument["kind"] == "map":
            memory[number] = arrays[f"in{number}"].copy()
            given.append(ptx.TensorMap(memory[number], argument["box"], argument["swizzle"]))
        elif argument["kind"] == "null":
            given.append(None)
        else:
            given.append(bytes.fromhex(argument["bytes"]))
    report = ptx.Module(FILES / "recorded" / said["file"]).launch(said["kernel"], said["grid"], said["block"], *given, shared=said["shared"])
    assert report.findings == ()
    compared = 0
    for key, value in arrays.items():
        if key.startswith("out"):
            assert memory[int(key[3:])].tobytes() == value.tobytes(), f"argument {key[3:]}"
            compared += value.size
    assert compared
