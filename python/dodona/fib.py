"""What the references of exported FlashInfer-Bench Definitions call (`dodona export --fib`).

A Definition's arrays are torch tensors (NumPy arrays do as well), row-major, of the element types that its schema has; types that it lacks
are whole numbers of the same bits, 4-bit ones bytes of two. `call` makes the op's arguments of them and what a Definition declares of the results. It runs golden mode."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._arrays import ALIASES, Typed, device_copies, is_torch, like_torch, numpy_dtype
from ._library import BadValue, fail
from ._ops import function, plan_of

def _array(value: Any) -> Any:
    return value.array if isinstance(value, Typed) else value


def _own(array: Any) -> Any:
    """A row-major copy."""
    return array.detach().clone().contiguous() if is_torch(array) else np.array(array, order="C")


def _column_major(array: Any) -> Any:
    return _own(array.swapaxes(-1, -2)).swapaxes(-1, -2)


def _argument(slot: Any, value: Any) -> Any:
    array = _array(value)
    if array is None or isinstance(array, (bool, int, float, str)):
        return value
    if slot.spec["layout"] == "column-major" and array.ndim >= 2:
        array = _column_major(array)
    elif slot.written:
        array = _own(array)
    return Typed(array, value.dtype) if isinstance(value, Typed) else array


def _result(value: Any, declared: str, model: Any) -> Any:
    """As declared: whole numbers of the same bits where a Definition has no name for the type, torch's where the arguments are."""
    if not hasattr(value, "dtype"):
        return value  # a number
    of_bits = declared in ("int8", "int64")
    if isinstance(value, np.ndarray):
        value = value.view(declared) if of_bits else value
        return value if model is None else like_torch(value, ALIASES[declared], model)
    if not of_bits:
        return value
    import torch

    return value.view(getattr(torch, declared))


def empty(shape: Any, dtype: str) -> np.ndarray:
    """An output that the caller of an op makes, for its shape follows from no argument."""
    return np.zeros(shape, numpy_dtype(dtype))


def call(op: str, outputs: dict[str, str], /, **arguments: Any) -> Any:
    """Runs golden mode and gives the named outputs, in their order and of the declared types: one, or a tuple. The caller's arrays stay as
    they are."""
    plan = plan_of(op)
    slots = {slot.name: slot for slot in plan.slots}
    given = {name: _argument(slots[name], value) if name in slots else value for name, value in arguments.items()}
    parameters = {parameter["field"]: parameter["name"] for parameter in plan.schema["parameters"] if parameter["field"]}
    with device_copies():
        returned = function(op)(**{parameters.get(name, name): value for name, value in given.items()}, mode="golden")
    made = [plan.slots[i].name for i in plan.outputs if plan.slots[i].name in outputs]
    values = dict(zip(made, returned if isinstance(returned, tuple) else (returned,)))
    for slot in plan.slots:
        if slot.spec["direction"] == "in place" and slot.name in given:
            values[slot.name] = _array(given[slot.name])
    for name in outputs:
        if name not in values:
            raise fail("is no output of this call", kind=BadValue, code="bad_value", op=op, argument=name)
    model = next((array for array in map(_array, arguments.values()) if is_torch(array)), None)
    results = tuple(_result(values[name], declared, model) for name, declared in outputs.items())
    return results[0] if len(results) == 1 else results


__all__ = ["call", "empty"]
