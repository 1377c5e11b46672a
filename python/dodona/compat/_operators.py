"""Operators of torch over functions that are no adapters: what they refuse is Refused under the operator's name, and autograd does not follow them."""

from __future__ import annotations

from typing import Any, Callable, Iterable, Mapping

from .._arrays import is_torch
from ._adapt import named

Operators = Mapping[str, Iterable[tuple[str, Callable[..., Any]]]]  # a library's schemas, each with what runs

_libraries: dict[str, Any] = {}  # torch forgets the operators of a library that nobody holds


def name_of(schema: str) -> str:
    return schema.partition("(")[0]


def names(operators: Operators) -> list[str]:
    """As torch.ops has them."""
    return sorted(f"{space}.{name_of(schema)}" for space, listed in operators.items() for schema, _ in listed)


def _detached(value: Any) -> Any:
    return value.detach() if is_torch(value) and value.requires_grad else value


def without_gradients(run: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: run(*map(_detached, args), **{name: _detached(value) for name, value in kwargs.items()})


def refusing(name: str, run: Callable[..., Any]) -> Callable[..., Any]:
    """Under the operator's name, whatever of it was wrong."""
    return without_gradients(named(name)(run))


def define(operators: Operators) -> None:
    """Once in a process; an operator that is registered already is left alone."""
    import torch

    for space, listed in operators.items():
        if space in _libraries:
            continue
        library = _libraries[space] = torch.library.Library(space, "FRAGMENT")
        for schema, run in listed:
            name, _, overload = name_of(schema).partition(".")
            packet = getattr(getattr(torch.ops, space), name, None)
            if packet is None or (overload or "default") not in packet.overloads():
                library.define(schema)
                library.impl(name_of(schema), run, "CompositeExplicitAutograd")
