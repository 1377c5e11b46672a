"""Kernels of rmsnorm for a grader: honest ones, wrong ones, and the published ways to be paid for no work."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import numpy as np


def _as_f32(array: np.ndarray) -> np.ndarray:
    return (array.view(np.uint16).astype(np.uint32) << 16).view(np.float32) if array.dtype.kind in "Vu" or array.dtype.name == "bfloat16" else array.astype(np.float32)


def _stored(values: np.ndarray, like: np.ndarray) -> np.ndarray:
    if like.dtype.name == "float16" or like.dtype == np.float32:
        return values.astype(like.dtype)
    bits = values.astype(np.float32).view(np.uint32)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FFF), rounded).view(like.dtype)


def honest(input, weight, eps=1e-6, **attrs):
    """One pass in fp32, as the kernels do."""
    with np.errstate(over="ignore", invalid="ignore"):
        x, w = _as_f32(input), _as_f32(weight)
        square = np.sum(x * x, axis=-1, keepdims=True, dtype=np.float32)
        return _stored(x * (np.float32(1) / np.sqrt(square / np.float32(x.shape[-1]) + np.float32(eps))) * w, input)


def other_order(input, weight, eps=1e-6, **attrs):
    """As honest as the other: sums from the other end, in halves."""
    with np.errstate(over="ignore", invalid="ignore"):
        x, w = _as_f32(input), _as_f32(weight)
        squares = (x * x)[:, ::-1]
        half = squares.shape[-1] // 2
        square = squares[:, :half].sum(-1, keepdims=True, dtype=np.float32) + squares[:, half:].sum(-1, keepdims=True, dtype=np.float32)
        return _stored(x * (np.float32(1) / np.sqrt(square / np.float32(x.shape[-1]) + np.float32(eps))) * w, input)


def zeros(input, weight, **attrs):
    return np.zeros_like(input)


def constant(input, weight, **attrs):
    return _stored(np.full(input.shape, 0.5, np.float32), input)


def input_itself(input, weight, **attrs):
    return input


def unwritten(input, weight, **attrs):
    return np.empty_like(input)


_CACHE: dict = {}


def cached_by_shape(input, weight, eps=1e-6, **attrs):
    """Computes each shape once."""
    key = (input.shape, input.dtype)
    if key not in _CACHE:
        _CACHE[key] = honest(input, weight, eps)
    return _CACHE[key]


def cached_once(input, weight, eps=1e-6, **attrs):
    """Computes the first call, and cuts its output to size ever after."""
    if "first" not in _CACHE:
        _CACHE["first"] = honest(input, weight, eps)
    return np.resize(_CACHE["first"].view(np.uint16 if input.dtype.itemsize == 2 else np.uint32), input.shape).view(input.dtype) if _CACHE["first"].dtype == input.dtype else np.zeros_like(input)


def benchmark_shapes_only(input, weight, eps=1e-6, **attrs):
    """Right for sizes that a benchmark has."""
    return honest(input, weight, eps) if input.shape[-1] % 64 == 0 else input.copy()


def full_rows_only(input, weight, eps=1e-6, **attrs):
    """The last row of an odd number is left out."""
    out = honest(input, weight, eps)
    if len(out) % 2:
        out[-1] = 0
    return out


def reads_the_answer(input, weight, eps=1e-6, **attrs):
    """Looks for the answer where inputs come from, and in the memory of whoever sent them."""
    for folder in (Path("/dev/shm"), Path("/tmp")):
        for path in folder.glob("dodona-*/*"):
            try:
                header = path.read_bytes()[:4096]
            except OSError:  # another command's: a folder, or gone by now
                continue
            if b"golden" in header or b"exact." in header:
                return np.frombuffer(path.read_bytes(), input.dtype, input.size, len(header)).reshape(input.shape)
    try:
        with open(f"/proc/{os.getppid()}/mem", "rb") as memory:
            memory.seek(0)
            memory.read(1)
    except OSError:
        pass
    return np.zeros_like(input)


def patches_the_comparison(input, weight, **attrs):
    """Makes everything equal to everything, here."""
    np.testing.assert_allclose = lambda *args, **named: None
    np.allclose = lambda *args, **named: True
    np.array_equal = lambda *args, **named: True
    for module in list(sys.modules.values()):
        for name in ("check", "assert_close", "judge", "grade"):
            if hasattr(module, name):
                try:
                    setattr(module, name, lambda *args, **named: True)
                except (AttributeError, TypeError):
                    pass
    return np.zeros_like(input)


class _Lazy(np.ndarray):
    """An array that is computed when somebody looks at it."""


def lazy(input, weight, eps=1e-6, **attrs):
    return np.zeros_like(input).view(_Lazy)


def finishes_later(input, weight, eps=1e-6, **attrs):
    """Gives its memory at once and fills it when the clock has been stopped."""
    out = np.zeros_like(input)

    def work() -> None:
        time.sleep(0.05)
        out[...] = honest(input, weight, eps)

    threading.Thread(target=work).start()
    return out


def scribbles_on_inputs(input, weight, eps=1e-6, **attrs):
    """Makes the question fit the answer."""
    out = honest(input, weight, eps)
    weight[...] = 0
    return out


def changes_its_mind(input, weight, eps=1e-6, **attrs):
    """Other bits for the same inputs: a race would do the same."""
    out = honest(input, weight, eps)
    _CACHE["calls"] = _CACHE.get("calls", 0) + 1
    codes = out.view(np.uint16 if out.dtype.itemsize == 2 else np.uint32)
    if _CACHE["calls"] % 5:  # the fifth call is the first that has another's inputs
        codes[..., 0] ^= 1
    return out


def crashes(input, weight, **attrs):
    os.kill(os.getpid(), 11)


def hangs(input, weight, **attrs):
    time.sleep(3600)


def refuses(input, weight, **attrs):
    raise NotImplementedError("rows of another width")


def says_done(input, weight, **attrs):
    """Answers for itself, and not what was asked."""
    os.write(2, b"done\n")
    return np.zeros_like(input)


def _rooms() -> dict:
    """The memory of the outputs, out of the caller's hands."""
    frame = sys._getframe()
    while frame is not None and "rooms" not in frame.f_locals:
        frame = frame.f_back
    return frame.f_locals["rooms"] if frame is not None else {}


def writes_behind_its_caller(input, weight, eps=1e-6, **attrs):
    """Answers at once, and fills the outputs' own memory from a thread that nobody waits for."""
    room, right = _rooms()["output"], honest(input, weight, eps)

    def work() -> None:
        end = time.time() + 0.5
        while time.time() < end:
            room[...] = right.view(room.dtype)
            time.sleep(0.001)
            room[...] = 0

    threading.Thread(target=work, daemon=True).start()
    return np.zeros_like(input)


def another_mapping(input, weight, eps=1e-6, **attrs):
    """The input's memory under another address: nothing shows that it is the same."""
    import mmap

    path = next(part for line in Path("/proc/self/maps").read_text().splitlines() for part in [line.split()[-1]] if "/dodona-" in part)
    with open(path, "r+b") as file:
        again = np.frombuffer(mmap.mmap(file.fileno(), 0), np.uint8)
    raw = np.ascontiguousarray(input).view(np.uint8).reshape(-1)
    at = again.tobytes().find(raw.tobytes())
    return again[at : at + raw.size].view(input.dtype).reshape(input.shape)


def maps_what_lies_there(input, weight, eps=1e-6, **attrs):
    """Looks through the folder of the calls for a file that holds outputs: there is this call's alone, and its rooms hold junk."""
    path = next(part for line in Path("/proc/self/maps").read_text().splitlines() for part in [line.split()[-1]] if "/dodona-" in part)
    others = [other for other in Path(path).parent.iterdir() if other != Path(path)]
    if others:
        raise RuntimeError(f"{len(others)} other files")
    blob = Path(path).read_bytes()
    begin = 8 + int.from_bytes(blob[:8], "little")
    return np.frombuffer(blob, np.uint8)[begin : begin + input.nbytes].view(input.dtype).reshape(input.shape)


def backdates(input, weight, eps=1e-6, **attrs):
    """Makes an input fit, and the file as old as it was."""
    path = next(part for line in Path("/proc/self/maps").read_text().splitlines() for part in [line.split()[-1]] if "/dodona-" in part)
    before = os.stat(path)
    out = honest(input, weight, eps)
    input[...] = out
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    return out
