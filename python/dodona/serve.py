"""A kernel's side of a grading: runs a Python function for each call that the grader sends.

    dodona grade rmsnorm H=512 -- python -m dodona.serve kernel.py:rmsnorm
    dodona grade rmsnorm -- python -m dodona.serve kernel.py:rmsnorm --torch cuda

The function gets the call's arguments by the names that `dodona info OP` lists, as NumPy arrays (bfloat16 and float8 as ml_dtypes has them,
where it is installed, else as raw codes in uint16 and uint8) or, with --torch DEVICE, as torch tensors there. It writes what the op writes in place, and returns the
other outputs: one, a tuple in their order, or a dict. What it raises is a failed call, NotImplementedError a refused one.

This file needs NumPy alone, and nothing else of the package: run it by its path where the kernel is not to have an oracle at hand.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import mmap
import os
import sys
import traceback
from pathlib import Path
from typing import Any, Callable

import numpy as np

# By the names of the safetensors format: what NumPy and torch call it, and the raw type of the same width.
_TYPES = {
    "F64": ("float64", "f8"), "F32": ("float32", "f4"), "F16": ("float16", "f2"), "BF16": ("bfloat16", "u2"), "I8": ("int8", "i1"),
    "U8": ("uint8", "u1"), "I16": ("int16", "i2"), "I32": ("int32", "i4"), "I64": ("int64", "i8"), "BOOL": ("bool", "?"),
    "F8_E4M3": ("float8_e4m3fn", "u1"), "F8_E5M2": ("float8_e5m2", "u1"), "F8_E8M0": ("float8_e8m0fnu", "u1"), "F4": ("uint8", "u1"),
}  # fmt: skip


class Call:
    """The file of a call: its inputs, its attributes and the rooms of its outputs, as raw arrays over the file's memory."""

    def __init__(self, path: str) -> None:
        with open(path, "r+b") as file:
            memory = mmap.mmap(file.fileno(), 0)
        length = int.from_bytes(memory[:8], "little")
        header = json.loads(memory[8 : 8 + length])
        told = header.pop("__metadata__")
        self.op: str = told["op"]
        self.attrs: dict[str, Any] = json.loads(told["attrs"])
        self.outputs: list[dict[str, Any]] = json.loads(told["outputs"])
        self._strides = self.attrs.pop("strides", {})
        self.types: dict[str, str] = {}
        self.raw: dict[str, np.ndarray] = {}
        for name, entry in header.items():
            shape = list(entry["shape"])
            if entry["dtype"] == "F4":
                shape[-1] //= 2
            type_name, raw = _TYPES[entry["dtype"]]
            self.types[name] = type_name
            array = np.frombuffer(memory, np.dtype(raw), int(np.prod(shape)), 8 + length + entry["data_offsets"][0]) if np.prod(shape) else np.empty(shape, raw)
            self.raw[name] = self._laid_out(name, array.reshape(shape))

    def _laid_out(self, name: str, array: np.ndarray) -> np.ndarray:
        """An input of a wider tensor: a copy with the strides of the call."""
        strides = self._strides.get(name)
        if strides is None or not array.size:
            return array
        span = 1 + sum((size - 1) * stride for size, stride in zip(array.shape, strides))
        wide = np.zeros(span, array.dtype)
        view = np.lib.stride_tricks.as_strided(wide, array.shape, [stride * array.itemsize for stride in strides])
        view[...] = array
        return view


def _as_numpy(raw: np.ndarray, type_name: str) -> np.ndarray:
    try:
        return raw.view(np.dtype(type_name))
    except TypeError:
        pass
    try:
        import ml_dtypes
    except ImportError:
        return raw
    return raw.view(getattr(ml_dtypes, type_name)) if hasattr(ml_dtypes, type_name) else raw


class NumPy:
    """Arrays over the file's memory: what is written in place is written there."""

    def give(self, raw: np.ndarray, type_name: str) -> Any:
        return _as_numpy(raw, type_name)

    def take(self, value: Any, type_name: str) -> np.ndarray:
        if isinstance(value, (int, float, np.generic)):
            value = np.asarray(value)
        if type(value) is not np.ndarray:
            raise TypeError(f"is a {type(value).__name__}, expected a NumPy array")
        return value

    def finish(self) -> None:
        pass


class Torch:
    """Tensors on a device; on the CPU over the file's memory."""

    def __init__(self, device: str) -> None:
        import torch

        self.torch, self.device = torch, torch.device(device)

    def give(self, raw: np.ndarray, type_name: str) -> Any:
        torch = self.torch
        signed = raw.view(np.int16) if raw.dtype == np.uint16 else raw
        dtype = getattr(torch, type_name)
        if raw.flags["C_CONTIGUOUS"]:
            tensor = torch.from_numpy(signed).view(dtype)
            return tensor.to(self.device) if self.device.type != "cpu" else tensor
        wide = torch.empty(1 + sum((n - 1) * s // raw.itemsize for n, s in zip(raw.shape, raw.strides)), dtype=dtype, device=self.device)
        view = wide.as_strided(raw.shape, [s // raw.itemsize for s in raw.strides])
        view.copy_(torch.from_numpy(np.ascontiguousarray(signed)).view(dtype))
        return view

    def take(self, value: Any, type_name: str) -> np.ndarray:
        torch = self.torch
        if isinstance(value, (int, float)):
            value = torch.tensor(value)
        if type(value) not in (torch.Tensor, torch.nn.Parameter):
            raise TypeError(f"is a {type(value).__name__}, expected a torch.Tensor")
        value = value.detach().contiguous().cpu()
        if not value.dtype.is_floating_point or value.dtype in (torch.float64, torch.float32, torch.float16):
            return value.numpy()
        return value.view(torch.int16 if value.element_size() == 2 else torch.uint8).numpy()

    def finish(self) -> None:
        if self.device.type == "cuda":
            self.torch.cuda.synchronize()


def _store(name: str, value: Any, room: np.ndarray, type_name: str, arrays: NumPy | Torch, inputs: dict[str, np.ndarray]) -> None:
    try:
        array = arrays.take(value, type_name)
    except TypeError as error:
        raise TypeError(f"{name} {error}") from None
    if array.shape != room.shape and array.size == room.size == 1:
        array = array.reshape(room.shape)
    if array.shape != room.shape:
        raise TypeError(f"{name} has shape {list(array.shape)}, expected {list(room.shape)}")
    for argument, memory in inputs.items():
        if array.size and np.shares_memory(array, memory):
            raise TypeError(f"{name} is memory of the argument {argument}")
    if array.dtype.kind in "iu" and room.dtype.kind in "iu" and array.dtype.itemsize != room.dtype.itemsize and array.size == 1:
        array = array.astype(room.dtype)
    if array.dtype.itemsize != room.dtype.itemsize:
        raise TypeError(f"{name} is {array.dtype}, expected {type_name}")
    room[...] = array if array.dtype == room.dtype else np.ascontiguousarray(array).view(room.dtype)


def run(function: Callable[..., Any], path: str, arrays: NumPy | Torch) -> None:
    """One call. Raises what the function raises, and TypeError for what it returns and should not."""
    call = Call(path)
    inputs = {name[3:]: raw for name, raw in call.raw.items() if name.startswith("in.")}
    arguments = {name: arrays.give(raw, call.types["in." + name]) for name, raw in inputs.items()}
    rooms = {output["name"]: call.raw["out." + output["name"]] for output in call.outputs}
    for output in call.outputs:
        if output["argument"]:
            arguments[output["name"]] = arrays.give(rooms[output["name"]], call.types["out." + output["name"]])
    result = function(**arguments, **call.attrs)
    arrays.finish()
    returned = [output["name"] for output in call.outputs if output["returned"]]
    values = dict(result) if isinstance(result, dict) else {}
    if not values and returned:
        values = dict(zip(returned, result if isinstance(result, (tuple, list)) else (result,)))
    for output in call.outputs:
        name, room = output["name"], rooms[output["name"]]
        if output["returned"]:
            if values.get(name) is None:
                raise TypeError(f"{name} is not returned")
            _store(name, values[name], room, call.types["out." + name], arrays, inputs)
        elif isinstance(arrays, Torch) and arrays.device.type != "cpu":
            _store(name, arguments[name], room, call.types["out." + name], arrays, {})


def _function(name: str) -> Callable[..., Any]:
    place, _, attribute = name.rpartition(":")
    if not place:
        raise SystemExit(f"dodona.serve: {name!r} names no function: expected FILE.py:FUNCTION or MODULE:FUNCTION")
    if place.endswith(".py"):
        sys.path.insert(0, str(Path(place).resolve().parent))
        spec = importlib.util.spec_from_file_location(Path(place).stem, place)
        if spec is None or spec.loader is None or not Path(place).is_file():
            raise SystemExit(f"dodona.serve: {place}: no such file")
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    else:
        sys.path.insert(0, os.getcwd())
        module = importlib.import_module(place)
    if not callable(getattr(module, attribute, None)):
        raise SystemExit(f"dodona.serve: {place} has no function {attribute!r}")
    return getattr(module, attribute)


def serve(function: Callable[..., Any], arrays: NumPy | Torch | None = None) -> None:
    """Answers calls until the grader ends. What the function prints goes where errors go."""
    arrays = arrays or NumPy()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        path = line.rstrip("\n")
        try:
            run(function, path, arrays)
            answer = f"done {path}"
        except NotImplementedError as error:
            answer = f"refused {path} {error}"
        except Exception as error:  # the grader is told of whatever goes wrong, and the next call comes
            traceback.print_exc()
            answer = f"failed {path} {type(error).__name__}: {error}"
        sys.stdout.flush()
        # On a line of its own, whatever was printed without an end.
        answers.write("\n" + " ".join(answer.split()) + "\n")
        answers.flush()


def main(words: list[str]) -> None:
    if len(words) not in (1, 3) or (len(words) == 3 and words[1] != "--torch"):
        raise SystemExit("usage: python -m dodona.serve FILE.py:FUNCTION [--torch DEVICE]")
    if sys.path and Path(sys.path[0]).resolve() == Path(__file__).resolve().parent:
        del sys.path[0]  # run by its path: the package's own files are no modules of the kernel
    serve(_function(words[0]), Torch(words[2]) if len(words) == 3 else NumPy())


if __name__ == "__main__":
    main(sys.argv[1:])
