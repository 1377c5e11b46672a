"""CUDA kernels as PTX, run on this CPU to a GPU's bits, and looked over while they run.

    module = dodona.ptx.Module("kernel.ptx")                              # a file, or the text itself
    report = module.launch("scale", 4, 128, x, y, n)                      # grid, block; NumPy arrays and CPU tensors of torch, written in place
    report = module.launch("scale", (4, 2), 128, x, y, n, shared=4096)    # bytes of dynamic shared memory

What a kernel does that it must not (memory out of bounds, races, uninitialised reads, misaligned accesses, diverged barriers, missing fences) raises
dodona.ptx.KernelError, which names the line of the kernel's source, the thread and the address; `findings="keep"` leaves it to the report.

What nvcc 12 and 13 (`nvcc -ptx -lineinfo`) and Triton 3.x compile for compute capabilities 8.0 to 9.0 runs. Tensor cores and approximate functions
give the bits of an H100.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import struct
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Iterable, Sequence

import numpy as np

from ._arrays import _device_copies, is_torch
from ._library import BadType, Error, Handle, check, fail, lib, path_bytes

_MEMORY, _VALUE, _TENSOR_MAP = 3, 1, 2
_READ_ONLY, _UNINITIALISED = 1, 2
_ADDRESS_BITS = 36  # memory of argument i lies at device address (i + 1) << 36


class _Argument(ctypes.Structure):
    """dodona_ptx_arg"""

    _fields_ = [("kind", ctypes.c_int), ("data", ctypes.c_void_p), ("bytes", ctypes.c_size_t), ("flags", ctypes.c_int)]


def _refuse(message: str, argument: str = "", code: str = "bad_value", kind: Any = None) -> Exception:
    options = {} if kind is None else {"kind": kind}
    return fail(message, code=code, op="ptx", argument=argument, **options)


@dataclass(frozen=True)
class Parameter:
    """What a kernel takes: `type` as the PTX has it ("u64", "f32", "b8")."""

    name: str
    type: str
    bytes: int
    pointer: bool


@dataclass(frozen=True)
class Open:
    """A sum of a product, neither with a rounding (`mul` then `add`): PTX leaves open whether both round or the sum alone."""

    line: int
    text: str
    place: int  # of the sum in the text: what launch(fused=) names
    fused: bool  # one rounding

    def __str__(self) -> str:
        return f"line {self.line}: {self.text}: {'one rounding' if self.fused else 'two roundings'}"


@dataclass(frozen=True)
class Readings:
    """How ptxas read a kernel's open sums."""

    kernel: str
    settled: bool  # the machine code is that of the text with these readings written out
    said: str  # what was compared with what
    open: tuple[Open, ...]
    counts: dict[str, int]  # float instructions of the machine code: "fma.f32", "mul.f32"...

    def __str__(self) -> str:
        return "\n".join([f"{self.kernel}: {'settled' if self.settled else 'not settled'}: {self.said}", *(f"  {each}" for each in self.open)])


@dataclass(frozen=True)
class Kernel:
    """An entry of a module."""

    name: str
    parameters: tuple[Parameter, ...]
    block: tuple[int, int, int] | None  # threads of a block, where the kernel demands them (.reqntid)
    shared: int  # bytes of static shared memory
    dynamic_shared: bool
    instructions: dict[str, int]  # how often each opcode stands there
    missing: tuple[str, ...]  # lines with instructions that cannot be run: an error when one is reached
    open: tuple[Open, ...] = ()  # sums of products that PTX leaves open, as ptxas is known to read them


@dataclass(frozen=True)
class Finding:
    """What a kernel did that it must not."""

    kind: str  # out_of_bounds, uninitialised, misaligned, read_only, diverged, race, wgmma_fence, proxy_fence, assertion
    space: str  # global, shared, local...
    line: int  # of the PTX
    source: str  # "kernel.py:41" where the PTX says so
    instruction: str
    block: tuple[int, int, int]
    thread: tuple[int, int, int]
    address: str  # "x+0x40", "shared+0x10"
    other: dict | None  # the other access of a race
    count: int
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Report:
    """What a launch did."""

    kernel: str
    blocks: int
    threads_per_block: int
    warp_instructions: int
    lane_instructions: int
    seconds: float
    checked: dict[str, bool]  # race, uninit: whether they were looked for
    findings: tuple[Finding, ...]
    open: tuple[str, ...]  # sums of products that PTX leaves open, and how this launch read them
    json: dict = field(repr=False)

    def __str__(self) -> str:
        speed = self.lane_instructions / self.seconds / 1e6 if self.seconds > 0 else 0.0
        lines = [f"{self.kernel}: {self.blocks} blocks of {self.threads_per_block} threads, {self.lane_instructions} lane instructions in {self.seconds:.3g} s ({speed:.0f} M/s)"]
        return "\n".join(lines + [f"  {finding}" for finding in self.findings])


class KernelError(AssertionError):
    """A kernel did what it must not; `report` has it all."""

    def __init__(self, report: Report) -> None:
        shown = "".join(f"\n  {finding}" for finding in report.findings[:8])
        more = len(report.findings) - 8
        super().__init__(f"{report.kernel}: {len(report.findings)} finding{'s' if len(report.findings) > 1 else ''}{shown}" + (f"\n  and {more} more" if more > 0 else ""))
        self.report = report


@dataclass(frozen=True)
class Trace:
    """The order of arithmetic behind one element."""

    expression: str
    json: dict = field(repr=False)

    def __str__(self) -> str:
        return self.expression


class Unwritten:
    """An array whose memory holds nothing yet (torch.empty): what a kernel reads there before it wrote it is a finding."""

    __slots__ = ("array",)

    def __init__(self, array: Any) -> None:
        self.array = array


class Pointers:
    """A table of pointers in device memory, one for each array (None: null)."""

    __slots__ = ("arrays",)

    def __init__(self, arrays: Iterable[Any]) -> None:
        self.arrays = list(arrays)


@dataclass(frozen=True)
class TensorMap:
    """A descriptor of bulk tensor copies over an array, with the meaning of cuTensorMapEncodeTiled. `box`: sizes of what one copy moves, outermost first
    like the array's own. `swizzle`: 0, 32, 64 or 128 bytes. What lies outside reads as zeros, or as NaN with fill="nan"."""

    array: Any
    box: Sequence[int]
    swizzle: int = 0
    fill: str = "zeros"
    element_strides: Sequence[int] | None = None


@dataclass
class _Range:
    begin: int
    end: int
    read_only: bool
    unwritten: bool
    index: int = -1


@dataclass(frozen=True)
class _Seen:
    """An array as a launch sees it: its first element, and the allocation that it lies in."""

    address: int
    begin: int
    end: int
    read_only: bool
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # bytes


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) or is_torch(value) or (hasattr(value, "__dlpack__") and not isinstance(value, np.generic))


def _see_numpy(array: np.ndarray) -> _Seen:
    root = array
    while isinstance(root.base, np.ndarray):
        root = root.base
    begin, end = np.lib.array_utils.byte_bounds(root) if hasattr(np.lib, "array_utils") else np.byte_bounds(root)
    return _Seen(array.ctypes.data, begin, max(end, begin), not array.flags.writeable, array.dtype.name, array.shape, array.strides)


def _see_torch(tensor: Any, name: str) -> _Seen:
    if tensor.device.type == "meta" or tensor.layout is not None and "strided" not in str(tensor.layout):
        raise _refuse("has no strided memory", name)
    if getattr(tensor, "requires_grad", False):
        tensor = tensor.detach()
    storage = tensor.untyped_storage()
    begin = storage.data_ptr()
    size = tensor.element_size()
    return _Seen(tensor.data_ptr(), begin, begin + storage.nbytes(), False, str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), tuple(size * s for s in tensor.stride()))


class _Arguments:
    """Packs a launch's arguments: every allocation becomes memory of the launch, every pointer a value."""

    def __init__(self, kernel: Kernel, names: Sequence[str] | None) -> None:
        self.kernel = kernel
        given = list(names or ())
        self.names = given + [parameter.name for parameter in kernel.parameters[len(given) :]]
        self.seen: list[tuple[str, _Seen, bool]] = []
        self.keep: list[Any] = []
        self.back: list[tuple[Any, Any]] = []
        self.ranges: list[_Range] = []

    def see(self, value: Any, name: str) -> _Seen:
        unwritten = isinstance(value, Unwritten)
        array = value.array if unwritten else value
        if is_torch(array):
            host = array
            if array.device.type not in ("cpu", "meta"):
                if not _device_copies.get() or not array.is_contiguous():
                    raise _refuse(f"is on {array.device}, expected the cpu; within dodona.device_copies() a contiguous tensor is copied there and back", name)
                host = array.detach().cpu()
                self.back.append((array, host))
            found = _see_torch(host, name)
            array = host
        elif isinstance(array, np.ndarray):
            found = _see_numpy(array)
        else:
            array = np.from_dlpack(array)
            found = _see_numpy(array)
        self.keep.append(array)
        self.seen.append((name, found, unwritten))
        return found

    def place(self, count: int) -> None:
        """Allocations that overlap are one; the first `count` arguments are the parameters."""
        for _, seen, unwritten in sorted(self.seen, key=lambda entry: entry[1].begin):
            last = self.ranges[-1] if self.ranges else None
            if last is not None and seen.begin < last.end:
                last.end = max(last.end, seen.end)
                last.read_only, last.unwritten = last.read_only and seen.read_only, last.unwritten and unwritten
            elif seen.end > seen.begin:
                self.ranges.append(_Range(seen.begin, seen.end, seen.read_only, unwritten))
        for index, each in enumerate(self.ranges):
            each.index = count + index

    def device(self, seen: _Seen) -> int:
        for each in self.ranges:
            if each.begin <= seen.address < each.end:
                return ((each.index + 1) << _ADDRESS_BITS) + seen.address - each.begin
        return 0  # an array without elements

    def buffer(self, seen: _Seen) -> tuple[int, int]:
        for each in self.ranges:
            if each.begin <= seen.address < each.end:
                return each.index, seen.address - each.begin
        raise _refuse("has no elements", "tensor map")

    def named(self, text: str) -> str:
        """`args[9]+0x40` as `x+0x40`."""

        def words(match: re.Match) -> str:
            index, offset = int(match.group(1)), int(match.group(2) or "0", 16)
            each = next((one for one in self.ranges if one.index == index), None)
            if each is None:
                return match.group(0)
            address = each.begin + offset
            inside = [(seen.address, name) for name, seen, _ in self.seen if each.begin <= seen.address < each.end and seen.address <= address]
            if not inside:
                return f"the memory before {next(name for name, seen, _ in self.seen if each.begin <= seen.begin < each.end)}"
            start, name = max(inside, key=lambda entry: entry[0])
            return f"{name}+{address - start:#x}"

        return re.sub(r"args\[(\d+)\](?:\+(0x[0-9a-fA-F]+))?", words, text)


_FORMATS = {"f64": "d", "f32": "f", "b32": "f", "b64": "d"}


def _number(value: Any, parameter: Parameter, name: str) -> bytes:
    """A parameter's bytes of a number."""
    if isinstance(value, (bytes, bytearray)):
        raw = bytes(value)
    elif isinstance(value, np.generic):
        raw = value.tobytes()
    elif isinstance(value, float):
        if parameter.type not in _FORMATS:
            raise _refuse(f"is a float, expected a number of type {parameter.type}", name, "bad_dtype", BadType)
        raw = struct.pack(_FORMATS[parameter.type], value)
    elif isinstance(value, (int, bool)):
        if parameter.type in ("f64", "f32"):
            raw = struct.pack(_FORMATS[parameter.type], value)
        elif parameter.bytes not in (1, 2, 4, 8):
            raise _refuse(f"is an integer, expected {parameter.bytes} bytes", name, "bad_dtype", BadType)
        else:
            bits = 8 * parameter.bytes
            if not -(1 << (bits - 1)) <= value < 1 << bits:
                raise _refuse(f"is {value}, which {bits} bits do not hold", name)
            raw = (value & ((1 << bits) - 1)).to_bytes(parameter.bytes, "little")
    else:
        raise _refuse(f"is {type(value).__name__}, expected an array, a number, bytes or None", name, "bad_dtype", BadType)
    if len(raw) != parameter.bytes:
        raise _refuse(f"has {len(raw)} bytes, expected {parameter.bytes} ({parameter.type})", name, "bad_dtype", BadType)
    return raw


_MAP_TYPES = {
    "bfloat16": "bf16", "float16": "f16", "float32": "f32", "float64": "f64", "int32": "i32", "int64": "i64", "uint32": "u32", "uint64": "u64", "int16": "u16",
    "uint16": "u16", "int8": "u8", "uint8": "u8", "float8_e4m3fn": "u8", "float8_e5m2": "u8",
}  # fmt: skip


def _tensor_map(given: TensorMap, seen: _Seen, placed: _Arguments, name: str) -> bytes:
    if seen.dtype not in _MAP_TYPES:
        raise _refuse(f"has dtype {seen.dtype}, which no tensor map takes", name, "bad_dtype", BadType)
    index, offset = placed.buffer(seen)
    rank = len(seen.shape)
    if len(given.box) != rank:
        raise _refuse(f"has a box of {len(given.box)} sizes, expected {rank}", name, "bad_shape")
    return json.dumps({
        "buffer": index, "offset": offset, "dtype": _MAP_TYPES[seen.dtype], "shape": list(reversed(seen.shape)), "strides": list(reversed(seen.strides[:-1])),
        "box": [int(size) for size in reversed(given.box)], "element_strides": list(reversed(given.element_strides or (1,) * rank)),
        "interleave": 0, "swizzle": given.swizzle, "l2": 0, "fill": given.fill,
    }).encode()  # fmt: skip


def _three(sizes: Any, name: str) -> Any:
    given = tuple(sizes) if isinstance(sizes, (tuple, list)) else (sizes,)
    if not 1 <= len(given) <= 3 or not all(isinstance(size, (int, np.integer)) and 0 <= size < 1 << 32 for size in given):
        raise _refuse(f"is {sizes!r}, expected one to three sizes", name, "bad_shape")
    return (ctypes.c_uint * 3)(*given, *(1,) * (3 - len(given)))


def _text_of(source: Any) -> tuple[str, str]:
    if isinstance(source, str) and ("\n" in source or ".version" in source):
        return source, "ptx"
    path = Path(os.fsdecode(path_bytes(source, "source")))
    try:
        return path.read_text(encoding="utf-8", errors="replace"), str(path)
    except OSError as error:
        raise _refuse(f"cannot be read: {error}", str(path), "bad_file") from error


class Module:
    """PTX, read and compiled once; any number of launches may use it, from any thread.

    `source`: a path, or the text (what has a line break is text). `name` stands in messages in the file's place.
    """

    def __init__(self, source: str | os.PathLike, name: str | None = None) -> None:
        text, path = _text_of(source)
        if "\0" in text:
            raise _refuse("holds a zero byte: it is no PTX text", name or path, "bad_file")
        place = ctypes.c_void_p()
        check(lib.dodona_ptx_module(text.encode(), (name or path).encode(), ctypes.byref(place)))
        self._handle = Handle(place.value, lib.dodona_ptx_free)
        told = json.loads(lib.dodona_ptx_describe(self._handle.value))
        self.version: str = told["version"]
        self.target: str = told["target"]
        self.kernels: dict[str, Kernel] = {}
        for each in told["kernels"]:
            self.kernels[each["name"]] = Kernel(
                each["name"], tuple(Parameter(p["name"], p["type"], p["bytes"], p["pointer"]) for p in each["parameters"]),
                tuple(each["block"]) if each["block"] else None, each["shared"], each["extern_shared"], each["instructions"], tuple(each["missing"]), _open(each["open"]),
            )  # fmt: skip

    def __repr__(self) -> str:
        return f"<dodona.ptx.Module {self.target}: {', '.join(self.kernels)}>"

    def kernel(self, name: str | None) -> Kernel:
        """The kernel of that name; None: the only one."""
        if name is None:
            if len(self.kernels) != 1:
                raise _refuse(f"must be one of {', '.join(self.kernels) or 'none'}", "kernel", "missing_argument")
            return next(iter(self.kernels.values()))
        if name not in self.kernels:
            raise _refuse(f"must be one of {', '.join(self.kernels) or 'none'}, got {name!r}", "kernel", "unknown_argument", BadType)
        return self.kernels[name]

    def launch(self, kernel: str | None, grid: Any, block: Any, *args: Any, shared: int = 0, findings: str = "raise", threads: int = 0, race: str = "auto", uninit: str = "auto", contract: Any = "auto",
               limit: int | None = None, most: int = 32, blocks: tuple[int, int] | None = None, names: Sequence[str] | None = None) -> Report:  # fmt: skip
        """Runs a kernel.

        `kernel`: its name (None: the only one). `grid`, `block`: sizes, up to three, x first; block=None where the kernel has .reqntid.
        `args`: the parameters in order. Arrays (NumPy, torch on the cpu) for pointers, written in place, of any strides: a kernel may touch the
        allocation that they lie in, and nothing else. Numbers take the parameter's type; a NumPy scalar or bytes must have its size. None is a null
        pointer. Pointers at the end may be left out (null). See Unwritten, Pointers and TensorMap for what else there is.
        `shared`: bytes of dynamic shared memory. `findings`: "raise" KernelError, or "keep" them in the report, at most `most`.
        `threads` of the CPU: 0 is all; results do not depend on it. `race`, `uninit`: "on", "off", or "auto", which looks at small launches.
        `contract`: how sums of products that PTX leaves open are read: "auto", as ptxas is known to; "ptxas", as it did (see readings()); "on" or
        True, one rounding each; "off" or False, two; or Readings. `limit`: instructions of one warp, after which a loop counts as endless. `blocks`: [begin, end) of the grid. `names`: of the arguments, for messages.
        """
        entry, packed, count, placed = self._pack(kernel, args, names)
        if findings not in ("raise", "keep"):
            raise _refuse(f"must be raise or keep, got {findings!r}", "findings", "bad_option")
        options = self._options(threads=threads, race=race, uninit=uninit, **self._reading(entry, contract), limit=limit, findings=most, blocks=blocks)
        place = ctypes.c_void_p()
        try:
            check(lib.dodona_ptx_launch(self._handle.value, entry.name.encode(), _three(grid, "grid"), None if block is None else _three(block, "block"), shared, packed, count, options, ctypes.byref(place)))
        except Error as error:
            error.args = (placed.named(str(error)),)
            raise
        handle = Handle(place.value, lib.dodona_record_free)
        report = _report(json.loads(placed.named(lib.dodona_record_text(handle.value).decode())))
        for tensor, host in placed.back:
            tensor.copy_(host)
        if report.findings and findings == "raise":
            raise KernelError(report)
        return report

    def trace(self, kernel: str | None, grid: Any, block: Any, *args: Any, argument: int, element: tuple[int, ...] | int = 0, shared: int = 0, depth: int | None = None, terms: int | None = None,
              contract: Any = "auto", names: Sequence[str] | None = None) -> Trace:  # fmt: skip
        """Runs the kernel like launch(), and writes how one element of argument number `argument` was computed: products, the tree of sums, roundings.
        `element`: its index. `depth`: operations below the root that are written out; `terms`: at most so many."""
        entry, packed, count, placed = self._pack(kernel, args, names)
        if not 0 <= argument < len(args) or not (_is_array(args[argument]) or isinstance(args[argument], Unwritten)):
            raise _refuse(f"must be the number of an array among the arguments, got {argument}", "argument")
        seen = next(found for name, found, _ in placed.seen if name == placed.names[argument])
        index = element if isinstance(element, tuple) else np.unravel_index(element, seen.shape)
        if len(index) != len(seen.shape) or not all(0 <= i < n for i, n in zip(index, seen.shape)):
            raise _refuse(f"is {element}, which is not in {list(seen.shape)}", "element")
        memory, offset = placed.buffer(seen)
        size = _itemsize(placed.keep[[found for _, found, _ in placed.seen].index(seen)])
        more = {"arg": memory, "offset": offset + sum(int(i) * s for i, s in zip(index, seen.strides)), "bytes": size}
        more |= {key: value for key, value in (("depth", depth), ("terms", terms)) if value is not None}
        options = json.dumps(json.loads(self._options(**self._reading(entry, contract))) | more).encode()
        place = ctypes.c_void_p()
        check(lib.dodona_ptx_trace(self._handle.value, entry.name.encode(), _three(grid, "grid"), None if block is None else _three(block, "block"), shared, packed, count, options, ctypes.byref(place)))
        handle = Handle(place.value, lib.dodona_record_free)
        told = json.loads(placed.named(lib.dodona_record_text(handle.value).decode()))
        return Trace(told["expression"], told)

    def readings(self, kernel: str | None = None, machine_code: Any = None, ptxas: str | None = None, disassembler: str | None = None, flags: str = "") -> Readings:
        """How ptxas read the sums of products that PTX leaves open: the machine code that it makes of the text is compared with that of the text with
        each reading written out.

        `machine_code`: a cubin (a file, or bytes) or a disassembler's text that is compared in its place. `ptxas`, `disassembler` (cuobjdump or nvdisasm):
        programs; otherwise $TRITON_PTXAS_PATH, the PATH and CUDA's folder are looked at. `flags`: of ptxas, "--fmad=false" for one.
        """
        entry = self.kernel(kernel)
        with contextlib.ExitStack() as stack:
            if isinstance(machine_code, (bytes, bytearray)):
                file = stack.enter_context(tempfile.NamedTemporaryFile(suffix=".cubin"))
                file.write(machine_code)
                file.flush()
                machine_code = file.name
            options = {"ptxas": ptxas, "disassembler": disassembler, "flags": flags or None, "machine_code": None if machine_code is None else os.fspath(machine_code)}
            place = ctypes.c_void_p()
            given = json.dumps({key: value for key, value in options.items() if value is not None}).encode()
            check(lib.dodona_ptx_readings(self._handle.value, entry.name.encode(), given, ctypes.byref(place)))
        handle = Handle(place.value, lib.dodona_record_free)
        told = json.loads(lib.dodona_record_text(handle.value).decode())
        return Readings(told["kernel"], told["settled"], told["said"], _open(told["open"]), told["counts"])

    def _reading(self, entry: Kernel, contract: Any) -> dict[str, Any]:
        if contract == "ptxas" and entry.open:
            contract = self.readings(entry.name)
            if not contract.settled:
                raise _refuse(f"ptxas is not settled: {contract.said}", "contract", "bad_option")
        if isinstance(contract, Readings):
            return {"fused": [each.place for each in contract.open if each.fused]}
        words = {"auto": "auto", "ptxas": "auto", "on": "on", True: "on", "off": "off", False: "off"}
        if not isinstance(contract, (str, bool)) or contract not in words:
            raise _refuse(f"must be auto, ptxas, on, off or Readings, got {contract!r}", "contract", "bad_option")
        return {"contract": words[contract]}

    @staticmethod
    def _options(blocks: tuple[int, int] | None = None, **given: Any) -> bytes:
        options = {key: value for key, value in given.items() if value is not None}
        if blocks is not None:
            options["blocks"] = list(blocks)
        return json.dumps(options).encode()

    def _pack(self, kernel: str | None, args: tuple, names: Sequence[str] | None) -> tuple[Kernel, Any, int, _Arguments]:
        entry = self.kernel(kernel)
        if len(args) > len(entry.parameters):
            raise _refuse(f"takes {len(entry.parameters)} arguments, got {len(args)}", entry.name, "unknown_argument", BadType)
        if len(args) < len(entry.parameters) and not all(parameter.pointer for parameter in entry.parameters[len(args) :]):
            raise _refuse(f"takes {len(entry.parameters)} arguments, got {len(args)}", entry.name, "missing_argument", BadType)
        placed = _Arguments(entry, names)
        made: list[Any] = []
        for value, parameter, name in zip(args, entry.parameters, placed.names):
            made.append(self._look(placed, value, parameter, name))
        tables = [each for each in made if isinstance(each, tuple)]
        placed.place(len(args))
        for table, found in tables:
            table[:] = [0 if one is None else placed.device(one) for one in found]
        packed = (_Argument * (len(args) + len(placed.ranges)))()
        for index, (value, parameter, name, each) in enumerate(zip(args, entry.parameters, placed.names, made)):
            if isinstance(value, TensorMap):
                text = ctypes.create_string_buffer(_tensor_map(value, each, placed, name))
                placed.keep.append(text)
                packed[index] = _Argument(_TENSOR_MAP, ctypes.addressof(text), 0, 0)
                continue
            if isinstance(each, tuple):
                each = _see_numpy(each[0])
            raw = placed.device(each).to_bytes(8, "little") if isinstance(each, _Seen) else each
            place = ctypes.create_string_buffer(raw, len(raw))
            placed.keep.append(place)
            packed[index] = _Argument(_VALUE, ctypes.addressof(place), len(raw), 0)
        for each in placed.ranges:
            flags = (_READ_ONLY if each.read_only else 0) | (_UNINITIALISED if each.unwritten else 0)
            packed[each.index] = _Argument(_MEMORY, each.begin, each.end - each.begin, flags)
        return entry, packed, len(packed), placed

    @staticmethod
    def _look(placed: _Arguments, value: Any, parameter: Parameter, name: str) -> Any:
        """What the argument is: an array as it is seen, a table with its arrays, or bytes."""
        if isinstance(value, TensorMap):
            if parameter.bytes != 128:
                raise _refuse(f"is a tensor map, expected {parameter.bytes} bytes ({parameter.type})", name, "bad_dtype", BadType)
            return placed.see(value.array, name)
        if isinstance(value, (Pointers, Unwritten)) or _is_array(value):
            if parameter.bytes != 8:
                raise _refuse(f"is an array, expected a number of type {parameter.type}", name, "bad_dtype", BadType)
        if isinstance(value, Pointers):
            found = [None if array is None else placed.see(array, f"{name}[{i}]") for i, array in enumerate(value.arrays)]
            table = np.zeros(max(1, len(found)), np.uint64)[: len(found)]
            placed.see(table, name)
            return table, found
        if isinstance(value, Unwritten) or _is_array(value):
            return placed.see(value, name)
        if value is None:
            if parameter.bytes != 8:
                raise _refuse(f"is None, expected a number of type {parameter.type}", name, "bad_dtype", BadType)
            return bytes(8)
        return _number(value, parameter, name)


def _itemsize(array: Any) -> int:
    return array.element_size() if is_torch(array) else array.dtype.itemsize


def _open(told: list) -> tuple[Open, ...]:
    return tuple(Open(each["line"], each["text"], each["place"], each["fused"]) for each in told)


def _report(told: dict) -> Report:
    findings = tuple(
        Finding(each["kind"], each.get("space", ""), each["line"], each.get("source", ""), each["instruction"], tuple(each["block"]), tuple(each["thread"]), each.get("address", ""),
                each.get("other"), each.get("count", 1), each["text"])
        for each in told["findings"]
    )  # fmt: skip
    opened = tuple(str(each) for each in _open(told["open"]))
    return Report(told["kernel"], told["blocks"], told["threads_per_block"], told["warp_instructions"], told["lane_instructions"], told["seconds"], told["checked"], findings, opened, told)


__all__ = ["Finding", "Kernel", "KernelError", "Module", "Open", "Parameter", "Pointers", "Readings", "Report", "TensorMap", "Trace", "Unwritten"]
