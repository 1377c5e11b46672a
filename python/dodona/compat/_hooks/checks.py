"""What functions that are no adapters ask of their arguments before an op sees them."""

from __future__ import annotations

from typing import Any

from ..._arrays import is_torch
from .._adapt import refuse
from .arrays import bare, not_writable, type_of


def shape_of(name: str, argument: str, value: Any, *ranks: int) -> tuple[int, ...]:
    shape = getattr(bare(value), "shape", None)
    if shape is None or len(shape) not in ranks:
        found = f"is {value!r}" if shape is None else f"has shape {list(shape)}"
        raise refuse(name, f"{found}, expected an array of {' or '.join(map(str, ranks))} dimensions", argument=argument, code="bad_shape")
    return tuple(shape)


def of_shape(name: str, argument: str, value: Any, wanted: tuple) -> None:
    if shape_of(name, argument, value, len(wanted)) != tuple(wanted):
        raise refuse(name, f"has shape {list(bare(value).shape)}, expected {list(wanted)}", argument=argument, code="bad_shape")


def of_type(name: str, argument: str, value: Any, *kinds: str) -> None:
    """One of our types, in memory of the CPU."""
    if (kind := type_of(value)) not in kinds:
        found = kind if kind != "?" else getattr(bare(value), "dtype", value)
        raise refuse(name, f"is {found}, expected {' or '.join(kinds)}", argument=argument, code="bad_dtype")
    array = bare(value)
    if is_torch(array) and (array.device.type != "cpu" or "strided" not in str(array.layout)):
        raise refuse(name, f"is {str(array.layout).rpartition('.')[2]} on {array.device}, expected strided on cpu", argument=argument)


def writable(name: str, argument: str, value: Any) -> None:
    if reason := not_writable(bare(value)):
        raise refuse(name, f"{reason}, and is written", argument=argument)
