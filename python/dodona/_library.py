"""The shared library through ctypes: functions with their types, and failures as exceptions."""

from __future__ import annotations

import ctypes
import json
import operator
import os
from ctypes import POINTER, c_char_p, c_double, c_int, c_size_t, c_ssize_t, c_void_p
from pathlib import Path
from typing import Any

MAX_RANK = 6
STRIDED, READ_ONLY, ARRAY_INTERFACE = 1, 2, 4
MODES = {"fast": 0, "golden": 1, "hopper": 2, "blackwell": 3, "ada": 4, "ampere": 5}
GPUS = {"h100": "hopper", "h200": "hopper", "b200": "blackwell", "l40s": "ada", "a100": "ampere"}
OUTCOMES = ("pass", "known defect", "vacuous", "fail")


class Error(Exception):
    """What a call got wrong: `code` is the name of the status, `op` and `argument` say where (either may be empty)."""

    code = op = argument = ""


class BadValue(Error, ValueError):
    """A shape, layout, value, file or option that cannot be."""


class BadType(Error, TypeError):
    """An element type or argument that the op does not take."""


class OutOfMemory(Error, MemoryError, ValueError):
    """The machine cannot hold what was asked for."""


class CTensor(ctypes.Structure):
    """dodona_tensor"""

    _fields_ = [
        ("name", c_char_p),
        ("data", c_void_p),
        ("dtype", c_int),
        ("rank", c_int),
        ("shape", c_ssize_t * MAX_RANK),
        ("flags", c_int),
        ("strides", c_ssize_t * MAX_RANK),
    ]


class CAttr(ctypes.Structure):
    """dodona_attr"""

    _fields_ = [("name", c_char_p), ("text", c_char_p), ("number", c_double)]


class CExec(ctypes.Structure):
    """dodona_exec"""

    _fields_ = [("mode", c_int), ("threads", c_int), ("isa", c_char_p)]


BEHIND_LAYER = ctypes.CFUNCTYPE(c_int, c_ssize_t, c_ssize_t, c_void_p)
"""dodona_behind_layer"""


def _find() -> str:
    named = os.environ.get("DODONA_LIBRARY")
    if named:
        return named
    beside = Path(__file__).with_name("libdodona.so")
    if beside.exists():
        return str(beside)
    raise ImportError(
        f"dodona: no shared library: {beside} is missing and DODONA_LIBRARY is not set "
        "(build the target dodona_shared and point DODONA_LIBRARY at libdodona.so, or pip install ./python)"
    )


def _open() -> ctypes.CDLL:
    path = _find()
    try:
        library = ctypes.CDLL(path)  # calls through a CDLL release the interpreter's lock
    except OSError as error:
        raise ImportError(f"dodona: cannot load {path}: {error}") from error
    tensors, pointer, text = c_void_p, POINTER(c_void_p), c_char_p
    # Structs travel as bytes: packing them is faster than filling ctypes objects.
    signatures = {
        "dodona_abi_version": (c_int, []),
        "dodona_version": (text, []),
        "dodona_status_name": (text, [c_int]),
        "dodona_last_error": (text, []),
        "dodona_last_error_op": (text, []),
        "dodona_last_error_argument": (text, []),
        "dodona_op_count": (c_size_t, []),
        "dodona_op_name": (text, [c_size_t]),
        "dodona_op_schema": (text, [text]),
        "dodona_run": (c_int, [text, c_void_p, c_size_t, c_void_p, c_size_t, c_void_p, c_void_p]),
        "dodona_prepare_for": (c_int, [text, c_void_p, c_size_t, c_void_p, c_size_t, c_void_p, pointer]),
        "dodona_prepared_gather": (c_int, [c_size_t, c_void_p, c_void_p, c_size_t, pointer]),
        "dodona_run_prepared": (c_int, [text, c_void_p, c_void_p, c_size_t, c_void_p, c_size_t, c_void_p, c_void_p]),
        "dodona_prepared_bytes": (c_size_t, [c_void_p]),
        "dodona_prepared_free": (None, [c_void_p]),
        "dodona_tensors_count": (c_size_t, [tensors]),
        "dodona_tensors_get": (c_int, [tensors, c_size_t, POINTER(CTensor)]),
        "dodona_tensors_free": (None, [tensors]),
        "dodona_case_from_line": (c_int, [text, c_void_p, pointer]),
        "dodona_case_from_call": (c_int, [text, c_void_p, c_size_t, c_void_p, c_size_t, pointer]),
        "dodona_case_load": (c_int, [text, c_void_p, pointer]),
        "dodona_case_save": (c_int, [c_void_p, text, c_int, c_void_p]),
        "dodona_case_free": (None, [c_void_p]),
        "dodona_case_op": (text, [c_void_p]),
        "dodona_case_line": (text, [c_void_p]),
        "dodona_case_attrs": (text, [c_void_p]),
        "dodona_case_inputs": (tensors, [c_void_p]),
        "dodona_case_recorded": (tensors, [c_void_p]),
        "dodona_case_run": (c_int, [c_void_p, c_void_p, pointer]),
        "dodona_case_explain": (c_int, [c_void_p, c_void_p, c_size_t, c_void_p, c_double, pointer]),
        "dodona_case_sample": (c_int, [c_void_p, c_void_p, c_size_t, c_void_p, c_size_t, c_size_t, pointer]),
        "dodona_case_whose": (c_int, [c_void_p, c_void_p, c_size_t, c_void_p, c_double, pointer]),
        "dodona_whose_text": (text, [c_void_p]),
        "dodona_whose_json": (text, [c_void_p]),
        "dodona_whose_free": (None, [c_void_p]),
        "dodona_verdict_outcome": (c_int, [c_void_p]),
        "dodona_verdict_passes": (c_int, [c_void_p]),
        "dodona_verdict_text": (text, [c_void_p]),
        "dodona_verdict_json": (text, [c_void_p]),
        "dodona_verdict_html": (text, [c_void_p]),
        "dodona_verdict_free": (None, [c_void_p]),
        "dodona_grade": (c_int, [text, c_void_p, c_size_t, text, pointer]),
        "dodona_same_bits": (c_int, [c_void_p, c_void_p, c_void_p, c_size_t, pointer]),
        "dodona_bits_same": (c_int, [c_void_p]),
        "dodona_bits_text": (text, [c_void_p]),
        "dodona_bits_json": (text, [c_void_p]),
        "dodona_bits_free": (None, [c_void_p]),
        "dodona_layer": (c_int, [text, pointer, pointer]),
        "dodona_generate": (c_int, [text, BEHIND_LAYER, c_void_p, pointer]),
        "dodona_record_text": (text, [c_void_p]),
        "dodona_record_free": (None, [c_void_p]),
        "dodona_ptx_module": (c_int, [text, text, pointer]),
        "dodona_ptx_describe": (text, [c_void_p]),
        "dodona_ptx_launch": (c_int, [c_void_p, text, c_void_p, c_void_p, c_size_t, c_void_p, c_size_t, text, pointer]),
        "dodona_ptx_trace": (c_int, [c_void_p, text, c_void_p, c_void_p, c_size_t, c_void_p, c_size_t, text, pointer]),
        "dodona_ptx_readings": (c_int, [c_void_p, text, text, pointer]),
        "dodona_ptx_free": (None, [c_void_p]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    if library.dodona_abi_version() != 1:
        raise ImportError(f"dodona: {path} has ABI {library.dodona_abi_version()}, this package speaks 1")
    return library


lib = _open()
version: str = lib.dodona_version().decode()

_TYPE_STATUSES = {"unknown_argument", "missing_argument", "bad_dtype"}


def fail(message: str, *, kind: type[Error] = BadValue, code: str = "bad_value", op: str = "", argument: str = "") -> Error:
    """The exception for what this package itself refuses, in the words of the library: `op: argument message`."""
    error = kind(f"{op + ': ' if op else ''}{argument + ' ' if argument else ''}{message}")
    error.code, error.op, error.argument = code, op, argument
    return error


def text_bytes(value: Any, argument: str, expected: str = "text") -> bytes:
    """A text as C reads it, which ends at a zero byte."""
    if not isinstance(value, str):
        raise fail(f"is {type(value).__name__}, expected {expected}", kind=BadType, argument=argument)
    if "\0" in value:
        raise fail(f"holds a zero byte, expected {expected}", argument=argument)
    return value.encode(errors="surrogateescape")


def path_bytes(value: Any, argument: str = "path") -> bytes:
    """A file's name as C reads it."""
    if not isinstance(value, (str, bytes, os.PathLike)):
        raise fail(f"is {type(value).__name__}, expected the name of a file", kind=BadType, argument=argument)
    name = os.fsencode(value)
    if b"\0" in name:
        raise fail("holds a zero byte, expected the name of a file", argument=argument)
    return name


def _plain(value: Any) -> Any:
    """What JSON has no form of, but means a number, a list or a name: NumPy's scalars and arrays, paths."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return os.fspath(value)


def options_bytes(options: dict[str, Any]) -> bytes:
    """Options as JSON, without those that are None."""
    texts = []
    for name, value in options.items():
        if value is None:
            continue
        try:
            texts.append(f"{json.dumps(name)}: {json.dumps(value, default=_plain, allow_nan=False)}")
        except TypeError:
            raise fail(f"is {value!r}, expected a number, a text, or a list of them", kind=BadType, code="bad_option", argument=name) from None
        except ValueError:
            raise fail(f"is {value!r}, expected a finite number", code="bad_option", argument=name) from None
    return ("{" + ", ".join(texts) + "}").encode(errors="surrogateescape")


def each(value: Any) -> Any:
    """One value, or several, as a list."""
    if value is None:
        return None
    return [value] if isinstance(value, (str, bytes)) or not hasattr(value, "__iter__") or getattr(value, "ndim", 1) == 0 else list(value)


def check(status: int) -> None:
    """Raises what the library says of a failed call on this thread."""
    if status == 0:
        return
    code = lib.dodona_status_name(status).decode()
    kind = BadType if code in _TYPE_STATUSES else OutOfMemory if code == "out_of_memory" else BadValue
    error = kind(lib.dodona_last_error().decode(errors="replace"))
    error.code = code
    error.op = lib.dodona_last_error_op().decode(errors="replace")
    error.argument = lib.dodona_last_error_argument().decode(errors="replace")
    raise error


def mode_of(mode: str | None, gpu: str | None) -> str | None:
    """The mode of a GPU where one is named."""
    if gpu is None:
        return mode
    if not isinstance(gpu, str) or gpu not in GPUS:
        raise fail(f"must be one of {', '.join(GPUS)}, got {gpu!r}", code="bad_option", argument="gpu")
    if mode is not None and mode != GPUS[gpu]:
        raise fail(f"{gpu!r} is {GPUS[gpu]} mode, but mode asks for {mode}", code="bad_option", argument="gpu")
    return GPUS[gpu]


def number_of(value: Any, argument: str) -> float:
    """A number that stands for seconds and the like."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise fail(f"is {str(value)[:40]!r}, expected a number", kind=BadType, argument=argument) from None


def whole_of(value: Any, argument: str, least: int) -> int:
    """A whole number that size_t holds."""
    try:
        whole = operator.index(value)
    except TypeError:
        raise fail(f"is {type(value).__name__}, expected a whole number", kind=BadType, argument=argument) from None
    if not least <= whole < 2**63:
        raise fail(f"must be a whole number from {least} on, got {whole}", code="bad_option", argument=argument)
    return whole


def exec_bytes(mode: str | None, threads: int | None, default: str = "fast") -> bytes | None:
    """dodona_exec, or None for the defaults."""
    if mode is None and threads is None:
        return None
    name = default if mode is None else mode
    if not isinstance(name, str) or name not in MODES:
        raise fail(f"must be one of {', '.join(MODES)}, got {name!r}", code="bad_option", argument="mode")
    count = 0 if threads is None else threads
    if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= 4096:
        raise fail(f"must be a whole number from 1 to 4096, got {threads!r}", code="bad_option", argument="threads")
    return bytes(CExec(MODES[name], count, None))


class Handle:
    """Owns one of the library's handles."""

    __slots__ = ("value", "_free")

    def __init__(self, value: int, free) -> None:
        self.value, self._free = value, free

    def __del__(self) -> None:
        self._free(self.value)


def made(call, free) -> Handle:
    """Runs `call` with a place for a handle; owns what it makes."""
    place = c_void_p()
    check(call(ctypes.byref(place)))
    return Handle(place.value, free)
