"""Which ops a package offers: those that have it among their sources."""

from __future__ import annotations

from typing import Any, Callable

from .._ops import function, names, plan_of


def offered(package: str) -> list[str]:
    """The inventory writes upstream as its projects do, sgl-kernel; a package's name has an underscore there."""
    return [op for op in names() if package in (source.replace("-", "_") for source in plan_of(op).schema["sources"])]


def with_dialect(op: str, dialect: str) -> Callable[..., Any]:
    """The op's function with the recipe of `dialect`, where that differs from the default."""
    base, plan = function(op), plan_of(op)
    recipe = {
        spec["name"]: spec["dialects"][dialect] for spec in plan.schema["attributes"] if dialect in spec.get("dialects", {})
    }
    if not recipe:
        return base

    def called(*args: Any, **kwargs: Any) -> Any:
        return base(*args, **{**recipe, **kwargs})

    called.__name__, called.__doc__, called.__wrapped__ = op, base.__doc__, base
    return called


def listing(functions: list[str]) -> str:
    """The end of a module's docstring."""
    return "Functions: " + ", ".join(functions) + "."
